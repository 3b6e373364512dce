// `--config -`: a config from standard input.
#include <unistd.h>

#include <algorithm>

#include "arguments.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/small_file.hpp"

namespace dslaunch::launcher {
namespace {

// Linux takes words of up to 128 KiB.
constexpr size_t kMaxBytes = size_t{96} << 10;

constexpr std::string_view kOption = "--config", kJoined = "--config=";

// The text, ended by a line break, so that it is not taken for a path (config::is_config_text).
std::string text_of_input() {
  if (::isatty(STDIN_FILENO) == 1) {
    throw UserError(ExitCode::kNoInput,
                    "--config -: standard input is a terminal; give the config through a pipe or <<'END', or its path");
  }
  SmallFile input = read_small_file("/dev/stdin", kMaxBytes);
  if (input.too_large) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("--config -: the config is longer than {} KiB: write it to a file", kMaxBytes >> 10));
  }
  if (!input.outcome.ok()) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("--config -: cannot read standard input: {}", input.outcome.error()));
  }
  if (input.bytes.find_first_not_of(" \t\r\n") == std::string::npos)
    throw UserError(ExitCode::kNoInput, "--config -: standard input is empty");
  if (input.bytes.find('\0') != std::string::npos)
    throw UserError(ExitCode::kBadInput, "--config -: standard input is not text: it has zero bytes");
  return std::move(input.bytes) + "\n";
}

}  // namespace

std::vector<std::string> with_config_from_input(std::vector<std::string> words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const bool is_config_command = !words.empty() && words[0] == "config";
  for (auto word = words.begin(); word != end; ++word) {
    const bool is_value = word != words.begin() && word[-1] == kOption;
    if (*word == "-" && (is_value || is_config_command)) {
      *word = text_of_input();
      break;
    }
    if (*word == std::string(kJoined) + "-") {
      *word = std::string(kJoined) + text_of_input();
      break;
    }
  }
  return words;
}

}  // namespace dslaunch::launcher
