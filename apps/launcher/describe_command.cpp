#include "describe_command.hpp"

#include <algorithm>

#include "commands.hpp"
#include "help_topics.hpp"

namespace dslaunch::launcher {

command_line::CommandDescription describe_command(const std::string& name) {
  command_line::CommandDescription out;
  {
    const command_line::DescribeInstead instead(out);
    Arguments asked{.command = name, .words = {"--help"}};
    asked.help_topic = kAllOptions;
    find_command(name)(asked);
  }
  if (name != "resume") return out;
  for (auto& option : describe_command("run").options) {
    const auto is_same = [&](const auto& own) { return own.names == option.names; };
    if (!option.is_positional && std::none_of(out.options.begin(), out.options.end(), is_same))
      out.options.push_back(std::move(option));
  }
  return out;
}

}  // namespace dslaunch::launcher
