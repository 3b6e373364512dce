// Launchers of other projects, and the programs that they start: their names, their options, and what those are here.
// Data and lookups. Any thread.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launcher {

struct Launcher {
  std::string_view name;
  std::string_view behind = "";   // the word that follows its name
  std::string_view program = "";  // what its first word without an option is given to
  bool counts_all = false;        // its number of processes is that of all hosts
  bool adds_local_rank = false;   // --local_rank=N, to the arguments of the program
};

// A launcher's option with a meaning of its own: the name here, or the variable that the launcher would set.
struct RenamedOption {
  std::string_view name, here;
};

// Null: it is not one. `word` may have a directory in front.
const Launcher* find_launcher(const std::string& word);
// The launcher that `python -m MODULE` is.
const Launcher* find_module_launcher(const std::string& module);
// Options with '_' between their words.
const RenamedOption* find_renamed_option(const std::string& name);
// Why nothing here has what the option says; empty: not known.
std::string_view reason_against(const std::string& name);
// Whether an option has no value, so that the word behind it may be the program.
bool is_launcher_switch(const std::string& name);

bool is_python(const std::string& word);
// "torchrun", "srun", "python3", also with a directory.
bool is_other_launcher(const std::string& word);
// Whether the word ends as a program of Python or a script does.
bool ends_as_program(const std::string& word);

}  // namespace dslaunch::launcher
