#include "launch/records/private_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/write_all.hpp"

namespace dslaunch::launch {

namespace fs = std::filesystem;

void make_private_dir(const std::string& path) {
  fs::path dir = fs::path(path).lexically_normal();
  std::error_code ignored;
  if (dir.has_relative_path() && !fs::exists(dir.parent_path(), ignored)) {
    make_private_dir(dir.parent_path().string());
  }
  if (::mkdir(dir.c_str(), 0700) == 0) return;
  if (errno != EEXIST) throw SystemError("mkdir", path, errno, ExitCode::kCannotCreate);
  struct stat found;
  if (::stat(dir.c_str(), &found) != 0) throw SystemError("stat", path, errno, ExitCode::kCannotCreate);
  if (!S_ISDIR(found.st_mode)) throw SystemError("mkdir", path, ENOTDIR, ExitCode::kCannotCreate);
  if (found.st_uid != ::geteuid())
    throw SystemError("use another user's directory", path, EPERM, ExitCode::kCannotCreate);
}

// Overwrites the file in place within its allocated blocks, which need no free space.
static bool write_over(const std::string& path, std::string_view text) {
  constexpr uint64_t kStatBlockBytes = 512;
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found;
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return false;
  if (text.size() > static_cast<uint64_t>(found.st_blocks) * kStatBlockBytes) return false;
  return write_all(file.get(), text) == 0 && ::ftruncate(file.get(), static_cast<off_t>(text.size())) == 0;
}

void write_private_file(const std::string& path, std::string_view text) {
  std::string aside = fmt::format("{}.{}", path, ::getpid());
  UniqueFd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  bool written = file.valid() && write_all(file.get(), text) == 0 && ::rename(aside.c_str(), path.c_str()) == 0;
  if (written) return;
  int error = errno;
  if (file.valid()) ::unlink(aside.c_str());
  bool is_full = error == ENOSPC || error == EDQUOT;
  if (!is_full || !write_over(path, text)) throw SystemError("write", path, error);
}

UniqueFd open_private_log(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
}

}  // namespace dslaunch::launch
