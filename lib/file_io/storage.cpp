#include "file_io/storage.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/format.hpp"

namespace dslaunch::file_io {
namespace {

struct Row {
  uint32_t magic;
  StorageKind kind;
  const char* name;
};

// statfs(2), linux/magic.h and the sources of the file systems that are not in the kernel.
constexpr Row kFileSystems[] = {
    {0x6969, StorageKind::kNetwork, "nfs"},          {0xFF534D42, StorageKind::kNetwork, "cifs"},
    {0xFE534D42, StorageKind::kNetwork, "smb"},      {0x517B, StorageKind::kNetwork, "smb"},
    {0x00C36400, StorageKind::kNetwork, "ceph"},     {0x0BD00BD0, StorageKind::kNetwork, "lustre"},
    {0x47504653, StorageKind::kNetwork, "gpfs"},     {0x19830326, StorageKind::kNetwork, "beegfs"},
    {0x5346414F, StorageKind::kNetwork, "afs"},      {0x01021997, StorageKind::kNetwork, "9p"},
    {0x7461636F, StorageKind::kNetwork, "ocfs2"},    {0xAAD7AAEA, StorageKind::kNetwork, "panfs"},
    {0x20030528, StorageKind::kNetwork, "orangefs"}, {0x01021994, StorageKind::kMemory, "tmpfs"},
    {0x858458F6, StorageKind::kMemory, "ramfs"},
};

bool says_one(const std::filesystem::path& file) {
  std::ifstream in(file);
  return in.get() == '1';
}

}  // namespace

std::optional<Storage> storage_of_magic(int64_t magic) {
  for (const Row& row : kFileSystems) {
    if (row.magic == static_cast<uint32_t>(magic)) return Storage{row.kind, row.name};
  }
  return std::nullopt;
}

std::optional<Storage> rotational_disk(dev_t device, const std::string& sys) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path link = fs::path(sys) / "dev/block" / fmt::format("{}:{}", ::major(device), ::minor(device));
  const fs::path entry = fs::canonical(link, error);
  if (error) return std::nullopt;
  // A partition's queue is that of its disk, one level higher.
  for (const auto& disk : {entry, entry.parent_path()}) {
    if (!fs::exists(disk / "queue/rotational", error)) continue;
    if (!says_one(disk / "queue/rotational")) return std::nullopt;
    const std::string name = disk.filename().string();
    if (name.starts_with("vd") || name.starts_with("xvd")) return std::nullopt;  // a virtual disk: nobody has told it
    return Storage{StorageKind::kRotationalDisk, name};
  }
  return std::nullopt;
}

Storage find_storage(const std::string& directory) {
  struct statfs file_system {};
  if (::statfs(directory.c_str(), &file_system) == 0) {
    if (auto known = storage_of_magic(static_cast<int64_t>(file_system.f_type))) return *known;
  }
  struct stat status {};
  if (::stat(directory.c_str(), &status) == 0) {
    if (auto disk = rotational_disk(status.st_dev)) return *disk;
  }
  return {};
}

std::optional<std::string> describe_caution(const Storage& storage, const std::string& directory) {
  switch (storage.kind) {
    case StorageKind::kRotationalDisk:
      return fmt::format("'{}' is on a disk that rotates ({}): a local NVMe disk is 10 to 50 times as fast", directory,
                         storage.name);
    case StorageKind::kNetwork:
      return fmt::format("'{}' is on a network file system ({}): choose a local disk if there is one", directory,
                         storage.name);
    case StorageKind::kMemory:
      return fmt::format("'{}' is in memory ({}): files there save no memory", directory, storage.name);
    case StorageKind::kDisk:
      break;
  }
  return std::nullopt;
}

}  // namespace dslaunch::file_io
