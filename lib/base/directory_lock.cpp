#include "base/directory_lock.hpp"

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

constexpr size_t kMaxOwnerBytes = 256;

std::string read_owner(int file) {
  char text[kMaxOwnerBytes];
  const ssize_t got = ::pread(file, text, sizeof text, 0);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "another job";
}

void write_owner(int file, const std::string& owner) {
  // The owner text is only for people, so a full disk does not fail the lock. A file with a second hard link is not
  // ours.
  struct stat found {};
  if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink > 1) return;
  if (::ftruncate(file, 0) != 0) return;
  [[maybe_unused]] auto written = ::pwrite(file, owner.data(), std::min(owner.size(), kMaxOwnerBytes), 0);
}

// Another launcher may have removed the file between our open and our lock.
bool is_current_file(int file, const std::string& path) {
  struct stat held {
  }, named{};
  return ::fstat(file, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

struct OpenedFile {
  UniqueFd file;
  bool is_writable = true;
};

// A file that another user's job left may still open for reading, which is enough to lock it. A symbolic link in its
// place, in a directory that others may write to, would make this process empty a file that they could not.
OpenedFile open_or_create(const std::string& path) {
  UniqueFd own(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (own.valid()) return {std::move(own)};
  const int refused = errno;
  UniqueFd existing(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));  // does not block on a pipe
  if (refused != EACCES || !existing.valid()) throw SystemError("create", path, refused, ExitCode::kCannotCreate);
  return {std::move(existing), false};
}

}  // namespace

Result<DirectoryLock> DirectoryLock::try_lock(const std::string& path, const std::string& owner) {
  for (;;) {
    auto [file, is_writable] = open_or_create(path);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      // NFS does not lock a file that is open for reading only.
      if (errno == EBADF) throw SystemError("lock", path, EACCES, ExitCode::kCannotCreate);
      if (errno != EWOULDBLOCK) return DirectoryLock();
      return Failure{read_owner(file.get())};
    }
    if (!is_current_file(file.get(), path)) continue;
    if (!is_writable && ::unlink(path.c_str()) == 0) continue;  // its owner is gone: retry creates our own file
    write_owner(file.get(), owner);                             // writes nothing to a file that stays another user's
    return DirectoryLock(std::move(file), path);
  }
}

bool DirectoryLock::is_held(const std::string& directory) {
  const std::string path = directory + "/.lock";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

DirectoryLock DirectoryLock::lock_run_directory(const std::string& directory, const std::string& owner,
                                                const std::string& own_job) {
  Result<DirectoryLock> lock = try_lock(directory + "/.lock", owner);
  // Only for the one rank 0, not for every rank 0 that a script of that job starts.
  if (!lock.ok() && lock.error() == launcher_of(own_job)) lock = try_lock(directory + "/.rank_0.lock", owner);
  if (lock.ok()) return *std::move(lock);
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot use the run directory {}: {} is using it; end that job first, or choose another "
                              "directory with --run_dir",
                              directory, lock.error()));
}

DirectoryLock::~DirectoryLock() {
  if (file_.valid() && is_current_file(file_.get(), path_)) ::unlink(path_.c_str());
}

}  // namespace dslaunch
