// The kernel's own messages about a process's death: out of memory, segmentation faults, traps. Reports nothing where
// the log is not readable, and inside a container, where the pids in the log mean other processes. One thread.
#pragma once
#include <sys/types.h>

#include <deque>
#include <string>

#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

class KernelLog {
 public:
  KernelLog();  // earlier messages are ignored

  // The kernel's message about the process since construction; empty: none.
  std::string about(pid_t pid);

 private:
  void read_new_lines();

  UniqueFd log_;
  std::deque<std::string> lines_;
};

// Rephrases one kernel line if it explains how this process ended; otherwise empty. Pure.
std::string death_in_kernel_line(const std::string& line, pid_t pid);

}  // namespace dslaunch::spawn
