#include "spawn/ssh/remote_command.hpp"

#include "base/error.hpp"
#include "base/shell_words.hpp"

namespace dslaunch::spawn {

std::string remote_command(const std::vector<std::string>& words) {
  for (const auto& word : words) {
    if (word.find('\0') != std::string::npos) {
      throw UserError(ExitCode::kUsage,
                      "an argument of a remote command contains a NUL byte, which command lines cannot carry");
    }
  }
  return shell_words(words);
}

}  // namespace dslaunch::spawn
