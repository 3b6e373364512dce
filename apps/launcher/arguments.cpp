#include "arguments.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {
namespace {

// A first word that is not an option, a path or a file is rejected as a mistyped command if it resembles one.
void refuse_mistyped_command(const std::string& word) {
  std::error_code ignored;
  if (word.starts_with("-") || word.find_first_of("./") != std::string::npos) return;
  if (std::filesystem::is_regular_file(word, ignored)) return;
  std::string hint = did_you_mean(word, command_names());
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
    refuse_mistyped_command(*word);
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
