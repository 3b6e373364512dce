// The commands as data and as manual pages: from the options that they declare, and the list that the help prints.
#pragma once
#include <string>

#include "command_line/description.hpp"

namespace dslaunch::launcher {

// Of one of commands_with_options(); for `run` with the options of all topics, for `resume` with those of `run`, which
// it takes too.
command_line::CommandDescription describe_command(const std::string& name);

// Its manual page, in the language of man(7). Of `run`, and "": dslaunch(1), which begins with the list of all
// commands.
std::string man_page(const std::string& command);

}  // namespace dslaunch::launcher
