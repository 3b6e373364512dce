// The kernel namespaces of this process. Any thread.
#pragma once
#include <sys/types.h>

namespace dslaunch::ports {

// The inode of this process's namespace of a kind ("pid", "ipc"), from /proc/self/ns; 0 where /proc does not show it.
ino_t own_namespace(const char* kind);

// Whether it is the machine's initial namespace. Elsewhere, in a container, pids differ from the kernel's, and some
// processes are not visible.
bool is_in_first_pid_namespace();
bool is_in_first_ipc_namespace();

}  // namespace dslaunch::ports
