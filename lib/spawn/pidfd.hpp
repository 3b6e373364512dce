// Process descriptors. Direct system calls: glibc 2.36 declares its wrappers without C linkage.
#pragma once
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

// If invalid, errno gives the reason, ESRCH when the process is gone. Some systems have no pidfds: see
// held_process.hpp.
inline UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

inline bool signal_pidfd(const UniqueFd& process, int signal) {
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

}  // namespace dslaunch::spawn
