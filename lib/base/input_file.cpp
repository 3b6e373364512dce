#include "base/input_file.hpp"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGlobCharacters = "*?[";

// Returns a pattern that only `path` itself matches.
std::string literal(const std::string& path) {
  std::string pattern;
  for (const char c : path) {
    if (c == '\\' || std::strchr(kGlobCharacters, c) != nullptr) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

UniqueFd open_input_file(const std::string& path, const std::string& what) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // rejects a pipe instead of waiting for it
  struct stat status {};
  if (!file.valid() && errno == EMFILE) throw SystemError("open", fmt::format("{} '{}'", what, path), errno);
  if (!file.valid() || ::fstat(file.get(), &status) != 0) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("cannot read {} '{}': {}", what, path, describe_open_error(path, errno)));
  }
  if (S_ISREG(status.st_mode)) return file;
  throw UserError(ExitCode::kNoInput, fmt::format("{} '{}' is a {}, not a file{}", what, path,
                                                  S_ISDIR(status.st_mode) ? "directory" : "device or pipe",
                                                  S_ISDIR(status.st_mode) ? "; name the files in it, or a glob" : ""));
}

std::vector<std::string> expand_globs(const std::vector<std::string>& patterns, const std::string& what,
                                      const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& pattern : patterns) {
    const std::string path = fs::path(directory) / pattern;
    struct stat status {};
    if (pattern.find_first_of(kGlobCharacters) == std::string::npos || ::stat(path.c_str(), &status) == 0) {
      paths.push_back(path);
      continue;
    }
    glob_t found{};
    const int result = ::glob((fs::path(literal(directory)) / pattern).c_str(), 0, nullptr, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result != 0) throw UserError(ExitCode::kNoInput, fmt::format("no {} matches '{}'", what, path));
  }
  return paths;
}

}  // namespace dslaunch
