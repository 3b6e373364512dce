// The scripts by which shells ask `dslaunch complete` for what fits behind an unfinished command line.
#pragma once
#include <string_view>
#include <vector>

namespace dslaunch::launcher {

struct CompletionScript {
  const char* name;  // of the shell
  const char* text;
};

const std::vector<CompletionScript>& completion_scripts();
// Null: of another shell.
const CompletionScript* find_completion_script(std::string_view shell);

}  // namespace dslaunch::launcher
