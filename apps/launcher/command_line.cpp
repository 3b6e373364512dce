#include "command_line.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "launch/commands/migration.hpp"

namespace dslaunch::launcher {

CommandLine::CommandLine(const std::string& command, const std::string& usage, const std::string& examples)
    : command_line::CommandLine(command, usage, examples, build_version()), command_(command) {}

bool CommandLine::parse(const Arguments& arguments, const command_line::OnLeftoverArgs& on_leftover_args) {
  // Also where an option lacks its value: "--num_gpus --help".
  const bool wants_help = std::any_of(arguments.words.begin(), arguments.words.end(),
                                      [](const auto& word) { return word == "--help" || word == "-h"; });
  if (arguments.later_wins) {
    for (CLI::Option* option : app().get_options()) {
      if (!option->get_positional() && option->get_expected_max() <= 1) option->take_last();
    }
  }
  const auto words = wants_help ? std::vector<std::string>{"--help"} : arguments.words;
  return command_line::CommandLine::parse(words, [&](const std::vector<std::string>& leftover) {
    on_leftover_args(leftover);
    const auto option = std::find_if(leftover.begin(), leftover.end(),
                                     [](const auto& word) { return word.starts_with("-") && word != "-"; });
    if (option == leftover.end()) return;
    if (const auto answer = launch::migration_answer(*option)) {
      usage_error(fmt::format("{}; see '{} --help'", *answer, command_));
    }
  });
}

}  // namespace dslaunch::launcher
