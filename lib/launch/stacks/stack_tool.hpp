// Reads the stacks of a process with an external program: py-spy for Python if installed, else gdb. Both stop the
// process while they read. Blocks up to the deadline. Any thread.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/deadline.hpp"

namespace dslaunch::launch {

struct ToolStacks {
  std::string tool;  // "py-spy", "gdb"; empty: neither gave an answer
  std::string text;
  std::string note;  // why no tool, or not the preferred one, was used, as a sentence
};

ToolStacks tool_stacks(pid_t pid, Deadline deadline);

// The threads' stacks in gdb's output; empty when there are none.
std::string threads_in_gdb_output(const std::string& output);

}  // namespace dslaunch::launch
