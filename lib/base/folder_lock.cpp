#include "base/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch {
namespace {

constexpr size_t kMostOwnerBytes = 256;

std::string read_owner(int file) {
  char text[kMostOwnerBytes];
  const ssize_t got = ::pread(file, text, sizeof text, 0);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "another job";
}

void write_owner(int file, const std::string& owner) {
  // Only words for people: a disk without room for them holds up nothing.
  if (::ftruncate(file, 0) != 0) return;
  [[maybe_unused]] auto written = ::pwrite(file, owner.data(), std::min(owner.size(), kMostOwnerBytes), 0);
}

// Another launcher may have taken the file away between our open and our lock.
bool is_still_there(int file, const std::string& path) {
  struct stat held {
  }, named{};
  return ::fstat(file, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

}  // namespace

FolderLock::Answer FolderLock::try_take(const std::string& path, const std::string& owner) {
  for (;;) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!file.valid()) throw SystemError("create", path, errno, ExitCode::kCannotCreate);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return {};
      return {{}, read_owner(file.get())};
    }
    if (!is_still_there(file.get(), path)) continue;
    write_owner(file.get(), owner);
    return {{std::move(file), path}, {}};
  }
}

FolderLock FolderLock::take_run_folder(const std::string& folder, const std::string& owner) {
  Answer answer = try_take(folder + "/.lock", owner);
  if (answer.holder.empty()) return std::move(answer.lock);
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot use the run folder {}: {} is at work in it; end that first, or choose another "
                              "with --run_dir",
                              folder, answer.holder));
}

FolderLock::~FolderLock() {
  if (file_.valid() && is_still_there(file_.get(), path_)) ::unlink(path_.c_str());
}

}  // namespace dslaunch
