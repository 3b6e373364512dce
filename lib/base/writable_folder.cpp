#include "base/writable_folder.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.hpp"

namespace dslaunch {

std::string why_not_writable(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path nearest = fs::absolute(folder, error);
  if (error) return folder + " leads nowhere: " + error.message();  // the working directory has been removed
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) break;
    nearest = nearest.parent_path();
  }
  if (!fs::is_directory(nearest, error)) {
    const bool silent = !error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return nearest.string() + (silent ? " is no folder" : " cannot be used: " + error.message());
  }
  // A dangling link does not exist to the kernel either, and yet no directory can be created in its place.
  for (fs::path part = fs::absolute(folder, error); part.has_relative_path() && part != nearest;
       part = part.parent_path()) {
    if (fs::is_symlink(part, error)) return part.string() + " is a link to what does not exist";
  }
  if (::access(nearest.c_str(), W_OK | X_OK) == 0) return {};
  return nearest.string() + " cannot be written to: " + describe_errno(errno);
}

std::string why_not_writable_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error)) return path + " is a folder";
  if (!fs::exists(path, error)) {
    const fs::path folder = fs::path(path).parent_path();
    return why_not_writable(folder.empty() ? "." : folder.string());
  }
  return ::access(path.c_str(), W_OK) == 0 ? "" : path + " cannot be written to: " + describe_errno(errno);
}

}  // namespace dslaunch
