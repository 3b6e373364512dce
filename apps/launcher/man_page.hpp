// Manual pages, in the language of man(7), from the same data as --help.
#pragma once
#include <string>

namespace dslaunch::launcher {

// Of a command of commands_with_options(); of `run`, and "": dslaunch(1), which begins with the list of all.
std::string man_page(const std::string& command);

}  // namespace dslaunch::launcher
