#include "spawn/ssh/remote_command.hpp"

#include <cctype>
#include <string_view>

#include "base/error.hpp"

namespace dslaunch::spawn {
namespace {

std::string quoted(const std::string& word) {
  bool plain = !word.empty();
  for (unsigned char c : word) {
    plain =
        plain && c < 128 && (std::isalnum(c) != 0 || std::string_view("_+,./:@-").find(c) != std::string_view::npos);
  }
  if (plain) return word;
  std::string text = "'";
  for (char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string remote_command(const std::vector<std::string>& words) {
  std::string command;
  for (const auto& word : words) {
    if (word.find('\0') != std::string::npos) {
      throw UserError(ExitCode::kUsage, "a word of a remote command holds a NUL byte, which no command line can carry");
    }
    command += (command.empty() ? "" : " ") + quoted(word);
  }
  return command;
}

}  // namespace dslaunch::spawn
