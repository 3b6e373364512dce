// What a shell offers behind an unfinished command line: commands, options, values of options, jobs, keys of the config
// and their values. All from the tables that the commands themselves are read with.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launcher {

struct Candidate {
  std::string text;   // the whole last word
  std::string about;  // one line, for shells that show it; may be empty
};

// `line`: what was typed up to the cursor, with the program's name. Empty: nothing is known to fit, or it is a file,
// which the shell completes itself.
std::vector<Candidate> complete(std::string_view line);

// The scripts by which shells ask `dslaunch complete`, which answers with complete().
struct CompletionScript {
  const char* name;  // of the shell
  const char* text;
};

const std::vector<CompletionScript>& completion_scripts();
// Null: of another shell.
const CompletionScript* find_completion_script(std::string_view shell);

}  // namespace dslaunch::launcher
