#include "base/writable_directory.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch {

Result<> check_writable(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path nearest = fs::absolute(directory, error);
  if (error)
    return Failure{directory + " cannot be resolved: " + error.message()};  // the working directory has been removed
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) break;
    nearest = nearest.parent_path();
  }
  if (!fs::is_directory(nearest, error)) {
    const bool is_expected =
        !error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return Failure{nearest.string() + (is_expected ? " is not a directory" : " cannot be used: " + error.message())};
  }
  // A dangling link does not exist to the kernel either, and yet no directory can be created in its place.
  for (fs::path part = fs::absolute(directory, error); part.has_relative_path() && part != nearest;
       part = part.parent_path()) {
    if (fs::is_symlink(part, error)) return Failure{part.string() + " is a dangling symbolic link"};
  }
  if (::access(nearest.c_str(), W_OK | X_OK) == 0) return {};
  return Failure{nearest.string() + " cannot be written to: " + describe_errno(errno)};
}

Result<> check_writable_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) return Failure{path + " is a directory"};
  if (!fs::exists(path, error)) {
    const fs::path directory = fs::path(path).parent_path();
    return check_writable(directory.empty() ? "." : directory.string());
  }
  if (::access(path.c_str(), W_OK) == 0) return {};
  return Failure{path + " cannot be written to: " + describe_errno(errno)};
}

std::string written_object(const std::string& path, uint64_t bytes_to_write, int error_number) {
  struct statvfs disk {};
  if (error_number != ENOSPC || ::statvfs(path.c_str(), &disk) != 0) return fmt::format("'{}'", path);
  return fmt::format("'{}' ({} to write, {} free)", path, format_bytes(static_cast<int64_t>(bytes_to_write)),
                     format_bytes(static_cast<int64_t>(disk.f_bavail * disk.f_frsize)));
}

}  // namespace dslaunch
