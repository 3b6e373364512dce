// The kernel's view of a process's threads, without stopping the process: each thread's name and state, its current
// system call and the kernel function where it waits. Any thread.
#pragma once
#include <sys/types.h>

#include <string>

namespace dslaunch::launch {

// One line per thread; equal lines are merged with their count. Empty when the process is gone.
std::string kernel_stacks(pid_t pid);

// "sleeps", for a state letter of /proc.
std::string process_state_text(char state);

// "futex", or the number of a call without a name here. `line`: from /proc/PID/task/TID/syscall. Empty: not in a call.
std::string system_call_in(const std::string& line);

}  // namespace dslaunch::launch
