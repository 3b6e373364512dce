#include "arguments.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/shell_words.hpp"
#include "base/split.hpp"
#include "commands.hpp"
#include "exec_line.hpp"
#include "other_launchers.hpp"

namespace dslaunch::launcher {
namespace {

// What other launchers and shells have as commands, and the words that do it here.
constexpr std::pair<std::string_view, std::string_view> kOtherCommands[] = {
    {"kill", "stop"},
    {"cancel", "stop"},
    {"ps", "jobs"},
    {"ls", "jobs"},
    {"status", "jobs"},
    {"tail", "logs -f"},
    {"watch", "top"},
    {"check", "config check"},
    {"explain", "config explain"},
    {"eval", "--eval_only"},
    {"evaluate", "--eval_only"},
    {"test", "--eval_only"},
    {"generate", "infer"},
    {"convert", "consolidate"},
    {"merge", "consolidate"},
    {"ds_report", "--version"},
    {"ds_io", "bench io"},
    {"zero_to_fp32.py", "consolidate"},
};

// The whole line with the words of a command here in place of `words[0]`. Empty: it is not one of other programs'.
std::string line_of_other_command(const std::vector<std::string>& words) {
  const auto* other = std::find_if(std::begin(kOtherCommands), std::end(kOtherCommands),
                                   [&](const auto& row) { return row.first == words.front(); });
  if (other == std::end(kOtherCommands)) return {};
  std::vector<std::string> line = split("dslaunch " + std::string(other->second), ' ');
  line.insert(line.end(), words.begin() + 1, words.end());
  return fmt::format(" (did you mean '{}'?)", shell_words(line));
}

// A first word that is not an option, a path or a file is rejected as a mistyped command if it resembles one.
void refuse_mistyped_command(const std::vector<std::string>& words) {
  const std::string& word = words.front();
  std::string hint = line_of_other_command(words);
  std::error_code ignored;
  if (hint.empty() && (word.starts_with("-") || word.find_first_of("./") != std::string::npos)) return;
  if (std::filesystem::is_regular_file(word, ignored)) return;
  if (const auto line = is_other_launcher(word) ? exec_line(words) : std::nullopt)
    throw UserError(ExitCode::kUsage, fmt::format("unknown command '{}': did you mean {}", word, line->text()));
  if (is_other_launcher(word)) hint = ": programs are started by 'dslaunch exec [options] -- PROGRAM'";
  if (hint.empty()) hint = did_you_mean(word, command_names());
  if (hint.empty()) return;
  throw UserError(ExitCode::kUsage, fmt::format("unknown command '{}'{}; see 'dslaunch --help'", word, hint));
}

}  // namespace

Arguments split_arguments(const std::vector<std::string>& words, const std::string& invoked_as) {
  Arguments split{.invoked_as = invoked_as, .typed = words, .command = "run", .words = {}, .program = {}};
  auto word = words.begin();
  if (word != words.end() && find_command(*word) != nullptr) {
    split.command = *word++;
  } else if (word != words.end()) {
    refuse_mistyped_command(words);
  }
  for (; word != words.end() && *word != "--"; ++word) {
    split.words.push_back(*word);
  }
  if (word != words.end()) {
    split.has_separator = true;
    split.program.assign(word + 1, words.end());
  }
  return split;
}

}  // namespace dslaunch::launcher
