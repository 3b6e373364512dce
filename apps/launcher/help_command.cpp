// `dslaunch help [COMMAND|TOPIC]`, `dslaunch help --man [COMMAND]` and `dslaunch version`.
#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "describe_command.hpp"
#include "help_topics.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {

// `dslaunch help --man [COMMAND]`.
static int print_man_page(const std::vector<std::string>& words) {
  const std::string command = words.size() > 1 ? words[1] : "";
  const auto known = commands_with_options();
  if (words.size() > 2 || (!command.empty() && std::find(known.begin(), known.end(), command) == known.end()))
    usage_error(fmt::format("dslaunch help --man [COMMAND]: one of {}", fmt::join(known, ", ")));
  std::fputs(man_page(command).c_str(), stdout);
  return 0;
}

int help_command(const Arguments& arguments) {
  if (!arguments.words.empty() && arguments.words[0] == "--man") return print_man_page(arguments.words);
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
  std::puts(build_version());
  return 0;
}

}  // namespace dslaunch::launcher
