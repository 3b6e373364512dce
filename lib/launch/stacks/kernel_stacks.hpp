// What the kernel says of a process's threads, without stopping it: each thread's name and state, the system call that
// it is in and the place in the kernel where it waits. Any thread.
#pragma once
#include <sys/types.h>

#include <string>

namespace dslaunch::launch {

// A line for each thread, equal ones as one with their number. Empty when the process is gone.
std::string kernel_stacks(pid_t pid);

// "sleeps", for a state letter of /proc.
std::string process_state_text(char state);

// "futex", or the number of a call that has no name here. `line`: of /proc/PID/task/TID/syscall. Empty: in no call.
std::string system_call_in(const std::string& line);

}  // namespace dslaunch::launch
