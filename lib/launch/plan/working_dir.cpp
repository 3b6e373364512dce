#include "launch/plan/working_dir.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {

std::string working_dir(std::string_view hint) {
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  if (!error) return here.string();
  throw UserError(ExitCode::kNoInput, fmt::format("cannot find the current directory ({}): has it been removed? cd to "
                                                  "another directory{}",
                                                  error.message(), hint));
}

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::filesystem::path whole(path);
  if (whole.is_relative()) whole = working_dir(fmt::format(", or give {} as an absolute path", path)) / whole;
  return whole.lexically_normal().string();
}

}  // namespace dslaunch::launch
