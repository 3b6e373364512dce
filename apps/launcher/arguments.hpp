// Preprocesses argv before CLI11: finds the command, normalizes the spelling of options, and keeps the program of
// `exec` separate and unchanged. Pure.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launcher {

struct Arguments {
  std::string command;               // "run" if no command was named
  std::vector<std::string> words;    // without the command; '-' in long options' names turned into '_'
  std::vector<std::string> typed;    // the same words, unchanged
  bool has_separator = false;        // there was a "--"
  std::vector<std::string> program;  // the words after "--", unchanged
};

// `words`: argv without the program's name. Throws UserError(64) for a command that does not exist.
Arguments split_arguments(const std::vector<std::string>& words);

}  // namespace dslaunch::launcher
