// In which of the kernel's namespaces this process is. Any thread.
#pragma once
#include <sys/types.h>

namespace dslaunch::ports {

// The inode of this process's namespace of a kind ("pid", "ipc"), as /proc/self/ns shows it; 0 where it does not.
ino_t own_namespace(const char* kind);

// Is it the one that the machine has started with? Elsewhere, in a container, pids are not the kernel's own, and
// processes are out of sight.
bool is_in_first_pid_namespace();
bool is_in_first_ipc_namespace();

}  // namespace dslaunch::ports
