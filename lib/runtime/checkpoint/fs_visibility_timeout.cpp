#include "runtime/checkpoint/fs_visibility_timeout.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <filesystem>

namespace dslaunch::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto kFileShowsIn = 5s;

// NFS caches that a name did not exist, and does not ask again for up to acdirmax, which is 60 s. Every rank looks at
// the directory at startup, before rank 0 creates it.
constexpr auto kMissingNameIsKept = 65s;

// File systems without such a cache, since no other host writes to them. A wrong guess costs a minute, or causes a
// wrong error, so all others count as shared.
bool is_local(decltype(statfs::f_type) type) {
  constexpr uint32_t kXfs = XFS_SUPER_MAGIC, kZfs = 0x2fc12fc1;
  switch (static_cast<uint32_t>(type)) {
    case EXT4_SUPER_MAGIC:  // ext2 and ext3 too
    case kXfs:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case kZfs:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::chrono::milliseconds fs_visibility_timeout(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::path nearest = std::filesystem::absolute(directory, ignored);
  struct statfs found {};
  while (::statfs(nearest.c_str(), &found) != 0) {
    if (!nearest.has_relative_path()) return kMissingNameIsKept;
    nearest = nearest.parent_path();
  }
  return is_local(found.f_type) ? kFileShowsIn : kMissingNameIsKept;
}

}  // namespace dslaunch::runtime
