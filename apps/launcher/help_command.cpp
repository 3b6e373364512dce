// `dslaunch help [COMMAND|TOPIC]` and `dslaunch version`.
#include <cstdio>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "commands.hpp"
#include "help_topics.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {

int help_command(const Arguments& arguments) {
  if (arguments.words.size() > 1) usage_error("dslaunch help [COMMAND|TOPIC]: one at a time");
  Arguments asked{.invoked_as = arguments.invoked_as, .typed = arguments.typed, .command = "run", .words = {"--help"}};
  if (arguments.words.empty()) return run_command(asked);
  const std::string& name = arguments.words[0];
  if (name == kAllOptions || find_topic(name) != nullptr) {
    asked.help_topic = name;
    return run_command(asked);
  }
  if (const Command command = find_command(name); command != nullptr && command != help_command) {
    asked.command = name;
    return command(asked);
  }
  if (name.starts_with("-") || name == "help") return run_command(asked);
  std::vector<std::string> known = command_names();
  for (const auto& topic : help_topics()) known.emplace_back(topic.name);
  usage_error(
      fmt::format("no help on '{}'{}; 'dslaunch help' lists commands and topics", name, did_you_mean(name, known)));
}

int version_command(const Arguments& arguments) {
  if (!arguments.words.empty())
    usage_error(fmt::format("unexpected argument '{}' behind 'version'", arguments.words[0]));
  std::puts("dslaunch " DSL_VERSION);
  return 0;
}

}  // namespace dslaunch::launcher
