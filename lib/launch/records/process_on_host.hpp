// Identifies a process by more than its pid, so that a reused pid is never mistaken for it. Any thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "spawn/held_process.hpp"

namespace dslaunch::launch {

struct ProcessOnHost {
  std::string host;     // the machine's own host name
  std::string boot_id;  // of that machine's kernel: pids are not valid across a reboot
  pid_t pid = -1;
  uint64_t start_ticks = 0;  // since boot, /proc/PID/stat
  // The namespace in which `pid` is valid (ports::own_namespace); 0: written by an older dslaunch, assumed to be this
  // one.
  uint64_t pid_namespace = 0;
  bool operator==(const ProcessOnHost&) const = default;
};

ProcessOnHost this_process();

enum class Presence {
  kAlive,
  kGone,
  kElsewhere,  // on another machine that shares a home directory with this one, or in another container: unknown here
};
Presence presence_of(const ProcessOnHost& process);

// A handle to signal the process and to wait for its end. Empty when the process is gone or elsewhere.
std::optional<spawn::HeldProcess> open_process(const ProcessOnHost& process);

// Suspended by a signal (Ctrl-Z): it does not answer.
bool is_suspended(const ProcessOnHost& process);

}  // namespace dslaunch::launch
