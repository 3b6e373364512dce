// The stacks of a process by a program that knows how to read them: py-spy for Python where it is there, else gdb. Both
// stop the process while they look. Blocks up to the deadline. Any thread.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/deadline.hpp"

namespace dslaunch::launch {

struct ToolStacks {
  std::string tool;  // "py-spy", "gdb"; empty: none of them gave an answer
  std::string text;
  std::string note;  // why no tool, or not the better one, as a sentence
};

ToolStacks tool_stacks(pid_t pid, Deadline deadline);

// What of gdb's output is the threads' stacks; empty when there are none.
std::string threads_in_gdb_output(const std::string& output);

}  // namespace dslaunch::launch
