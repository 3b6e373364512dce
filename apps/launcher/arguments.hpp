// Preprocesses argv before CLI11: finds the command, and keeps the program of `exec` separate.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::launcher {

struct Arguments {
  std::string invoked_as;            // how the user called this program: "dslaunch", or a path of it
  std::vector<std::string> typed;    // all words
  std::string command;               // "run" if no command was named
  std::vector<std::string> words;    // without the command, up to a "--"
  bool has_separator = false;        // there was a "--"
  std::vector<std::string> program;  // the words after "--"
  std::string help_topic;            // of `dslaunch help TOPIC`; empty: what --help shows
  bool later_wins = false;           // an option that is given twice has its last value; else that is an error
};

// `words`: argv without the program's name, which is `invoked_as`. Throws UserError(64) for a command that does not
// exist.
Arguments split_arguments(const std::vector<std::string>& words, const std::string& invoked_as = "dslaunch");

// The words with the text of standard input in place of a "-" that stands for a config (`--config -`, `config check
// -`); as they are if there is none. So every later reader, on every host and at every restart, has the text itself.
// Throws UserError(66) when it cannot be read or is empty, 65 when it is too long for a word.
std::vector<std::string> with_config_from_input(std::vector<std::string> words);

}  // namespace dslaunch::launcher
