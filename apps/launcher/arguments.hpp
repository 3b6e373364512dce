// argv before CLI11 sees it: which command, the options in one spelling, the program of `exec` kept apart untouched.
// Pure.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launcher {

struct Arguments {
  std::string command;               // "run" when none was named
  std::vector<std::string> words;    // without the command; '-' in long options' names turned into '_'
  std::vector<std::string> typed;    // the same words, unchanged
  bool has_separator = false;        // there was a "--"
  std::vector<std::string> program;  // what stood behind it, unchanged
};

// `words`: argv without the program's name. Throws UserError(64) for a command that does not exist.
Arguments split_arguments(const std::vector<std::string>& words);

}  // namespace dslaunch::launcher
