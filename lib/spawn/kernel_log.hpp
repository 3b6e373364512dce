// What the kernel itself said about a process's death: out of memory, segmentation faults, traps. Silent where its log
// may not be read, and inside a container, where the pids in it mean other processes. One thread.
#pragma once
#include <sys/types.h>

#include <deque>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

class KernelLog {
 public:
  KernelLog();  // what was said before does not count

  // What was said about the process since then; empty: nothing.
  std::string about(pid_t pid);

 private:
  void read_new_lines();

  UniqueFd log_;
  std::deque<std::string> lines_;
};

// One line of the kernel in our words, when it tells how this process came to its end; else empty. Pure.
std::string death_in_kernel_line(const std::string& line, pid_t pid);

}  // namespace dslaunch::spawn
