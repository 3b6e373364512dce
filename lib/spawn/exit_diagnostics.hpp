// Why a process ended by a signal, as far as this machine can tell: out-of-memory counters, the kernel's log, /dev/shm,
// and what such a signal usually means. One thread; make it before the processes start.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "spawn/exit_cause.hpp"
#include "spawn/kernel_log.hpp"
#include "spawn/oom_watch.hpp"

namespace dslaunch::spawn {

class ExitDiagnostics {
 public:
  // `cgroups`: the text of its /proc/PID/cgroup. Empty when nothing is known.
  std::string explain(const ExitCause& cause, pid_t pid, const std::string& cgroups);

 private:
  OomWatch oom_;
  KernelLog log_;
};

// What a signal means for a program that died of it, in a clause; empty for those that others send (SIGTERM, SIGKILL).
std::string meaning_of_signal(int signal);

// Sizes of /dev/shm in words when it is nearly full or so small that a program of ours soon fills it; else empty.
std::string shared_memory_trouble(uint64_t size_bytes, uint64_t free_bytes);

}  // namespace dslaunch::spawn
