// A process that SIGKILL does not end: one of its threads waits inside the kernel for a disk, a network file system or
// a driver, and takes no signal until that wait is over. Uses Linux's /proc; any thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::spawn {

struct StuckProcess {
  pid_t pid = -1;
  uint64_t start_ticks = 0;  // since boot: distinguishes it from a later process with the same pid
  char state = '?';          // as in /proc/PID/stat, of the waiting thread: D if it waits in the kernel
  std::string wait_channel;  // the kernel function in which it waits; empty: not visible
  bool operator==(const StuckProcess&) const = default;
};

// The reason why a killed process still exists. nullopt: all its threads have ended, reaped or not.
std::optional<StuckProcess> inspect_stuck(pid_t pid);

// "process 4711 is stuck in the kernel (state D, wait channel rpc_wait_bit) and ..."
std::string describe(const StuckProcess& stuck);

}  // namespace dslaunch::spawn
