#include "runtime/telemetry/append_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/write_all.hpp"

namespace dslaunch::runtime {

AppendFile::AppendFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!fd_.valid()) throw SystemError("create", "'" + path + "'", errno, ExitCode::kCannotCreate);
}

void AppendFile::write(std::string_view bytes) {
  if (const int error = write_all(fd_.get(), bytes); error != 0) throw SystemError("write", "'" + path_ + "'", error);
}

void AppendFile::truncate(int64_t bytes) {
  if (::ftruncate(fd_.get(), bytes) != 0 && errno != EINVAL) throw SystemError("truncate", "'" + path_ + "'");
}

int64_t AppendFile::size() const {
  struct stat status {};
  return ::fstat(fd_.get(), &status) == 0 ? status.st_size : 0;
}

bool AppendFile::is_removed() const {
  struct stat status {};
  return ::stat(path_.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

void make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError("create directory", "'" + path + "'", error.value(), ExitCode::kCannotCreate);
}

}  // namespace dslaunch::runtime
