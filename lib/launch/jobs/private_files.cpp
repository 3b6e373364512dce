#include "launch/jobs/private_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {

namespace fs = std::filesystem;

void make_private_folder(const std::string& path) {
  fs::path folder = fs::path(path).lexically_normal();
  std::error_code ignored;
  if (folder.has_relative_path() && !fs::exists(folder.parent_path(), ignored)) {
    make_private_folder(folder.parent_path().string());
  }
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  if (errno != EEXIST) throw SystemError("mkdir", path, errno, ExitCode::kCannotCreate);
  struct stat found;
  if (::stat(folder.c_str(), &found) != 0) throw SystemError("stat", path, errno, ExitCode::kCannotCreate);
  if (!S_ISDIR(found.st_mode)) throw SystemError("mkdir", path, ENOTDIR, ExitCode::kCannotCreate);
  if (found.st_uid != ::geteuid()) throw SystemError("use another user's folder", path, EPERM, ExitCode::kCannotCreate);
}

void write_private_file(const std::string& path, std::string_view text) {
  std::string aside = fmt::format("{}.{}", path, ::getpid());
  UniqueFd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) throw SystemError("create", aside);
  while (!text.empty()) {
    ssize_t wrote = ::write(file.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      int error = errno;
      ::unlink(aside.c_str());
      throw SystemError("write", aside, error);
    }
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  if (::rename(aside.c_str(), path.c_str()) != 0) {
    int error = errno;
    ::unlink(aside.c_str());
    throw SystemError("rename to", path, error);
  }
}

UniqueFd open_private_log(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
}

}  // namespace dslaunch::launch
