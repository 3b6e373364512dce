#include "launch/records/dead_sockets.hpp"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <vector>

#include "launch/records/job_id.hpp"
#include "launch/records/socket_path.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

// A socket needs only moments between its bind and its rename.
constexpr std::time_t kMaxNewAge = 60;

// A socket works on its own host only: on other hosts it looks dead.
bool is_of_this_host_alone(const std::string& dir) {
  constexpr std::array<uint32_t, 7> kLocal = {0x01021994,   // tmpfs
                                              0x858458f6,   // ramfs
                                              0xef53,       // ext
                                              0x58465342,   // xfs
                                              0x9123683e,   // btrfs
                                              0x794c7630,   // overlayfs
                                              0x2fc12fc1};  // zfs
  struct statfs found {};
  return ::statfs(dir.c_str(), &found) == 0 &&
         std::find(kLocal.begin(), kLocal.end(), static_cast<uint32_t>(found.f_type)) != kLocal.end();
}

// JOB.sock, and JOB.sock.new of a launcher that was killed before it listened.
bool may_be_dead(const std::string& name, const struct stat& file) {
  std::string_view job = name;
  if (job.ends_with(kNewEnding)) {
    if (std::time(nullptr) - file.st_mtime < kMaxNewAge) return false;
    job.remove_suffix(kNewEnding.size());
  }
  if (!job.ends_with(kSocketEnding)) return false;
  job.remove_suffix(kSocketEnding.size());
  return is_job_id(job) && S_ISSOCK(file.st_mode) && file.st_uid == ::geteuid();
}

}  // namespace

void remove_dead_sockets() {
  const std::string dir = socket_dir();
  if (dir.empty() || !is_of_this_host_alone(dir)) return;
  std::error_code error;
  std::vector<fs::path> candidates;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    struct stat file {};
    if (::lstat(entry->path().c_str(), &file) == 0 && may_be_dead(entry->path().filename().string(), file)) {
      candidates.push_back(entry->path());
    }
  }
  for (const auto& path : candidates) {
    if (!connect_to(path.string()).valid() && errno == ECONNREFUSED) ::unlink(path.c_str());
  }
}

}  // namespace dslaunch::launch
