// Explains why a signal ended a process, as far as this machine can tell: out-of-memory counters, the kernel's log,
// /dev/shm, and the usual meaning of the signal. One thread; create it before the processes start.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "spawn/exit_cause.hpp"
#include "spawn/kernel_log.hpp"
#include "spawn/oom_watch.hpp"

namespace dslaunch::spawn {

class ExitDiagnostics {
 public:
  // `memory_advice`: what to do when memory is the cause.
  explicit ExitDiagnostics(std::string memory_advice =
                               "use fewer ranks of this host or a smaller micro batch, or offload less to its memory")
      : memory_advice_(std::move(memory_advice)) {}
  // `cgroups`: the text of the process's /proc/PID/cgroup. Returns an empty string when nothing is known.
  std::string explain(const ExitCause& cause, pid_t pid, const std::string& cgroups);

 private:
  const std::string memory_advice_;
  OomWatch oom_;
  KernelLog log_;
};

// What a signal that killed a program means, as a clause; empty for signals sent by other processes (SIGTERM, SIGKILL).
std::string meaning_of_signal(int signal);

// Describes /dev/shm's sizes when it is nearly full or so small that our programs soon fill it; otherwise empty.
std::string shared_memory_hint(uint64_t size_bytes, uint64_t free_bytes);

}  // namespace dslaunch::spawn
