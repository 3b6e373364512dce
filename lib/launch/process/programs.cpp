#include "launch/process/programs.hpp"

#include <unistd.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::launch {

static std::string read_own_program() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw SystemError("readlink", "/proc/self/exe", error.value());
  return path.string();
}

const std::string& own_program() {
  static const std::string program = read_own_program();
  return program;
}

std::string worker_program() {
  std::filesystem::path path = std::filesystem::path(own_program()).parent_path() / "dsworker";
  if (::access(path.c_str(), X_OK) != 0) {
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("the program {} is missing: dsworker must be in the directory of dslaunch (build it with "
                    "'cmake --build', or install both)",
                    path.string()));
  }
  return path.string();
}

}  // namespace dslaunch::launch
