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
  if (error) return folder + " leads nowhere: " + error.message();  // where we are has been removed
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) break;
    nearest = nearest.parent_path();
  }
  if (!fs::is_directory(nearest, error)) return nearest.string() + " is no folder";
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
