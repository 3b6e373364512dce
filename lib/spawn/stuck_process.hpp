// A process that SIGKILL does not end: a thread of it waits inside the kernel for a disk, a network file system or a
// driver, and takes no signal before that is over. Linux's /proc; any thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::spawn {

struct StuckProcess {
  pid_t pid = -1;
  uint64_t start_ticks = 0;  // since boot: no later process with the same number
  char state = '?';          // as in /proc/PID/stat, of the thread that waits: D where it does so in the kernel
  std::string wait_channel;  // the kernel's function in which it waits; empty: not to be seen
  bool operator==(const StuckProcess&) const = default;
};

// What keeps a process that was killed. Empty: all its threads have ended, reaped or not.
std::optional<StuckProcess> look_at_stuck(pid_t pid);

// "process 4711 is stuck in the kernel (state D, wait channel rpc_wait_bit) and ..."
std::string describe(const StuckProcess& stuck);

}  // namespace dslaunch::spawn
