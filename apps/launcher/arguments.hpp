// Preprocesses argv before CLI11: finds the command, and keeps the program of `exec` separate. Pure.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launcher {

struct Arguments {
  std::string command;               // "run" if no command was named
  std::vector<std::string> words;    // without the command, up to a "--"
  bool has_separator = false;        // there was a "--"
  std::vector<std::string> program;  // the words after "--"
};

// `words`: argv without the program's name. Throws UserError(64) for a command that does not exist.
Arguments split_arguments(const std::vector<std::string>& words);

}  // namespace dslaunch::launcher
