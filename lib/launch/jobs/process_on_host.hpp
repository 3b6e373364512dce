// A process by more than its number, so that a number given to somebody else is never taken for it. Any thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "spawn/held_process.hpp"

namespace dslaunch::launch {

struct ProcessOnHost {
  std::string host;     // what the machine calls itself
  std::string boot_id;  // of that machine's kernel: pids mean nothing after a reboot
  pid_t pid = -1;
  uint64_t start_ticks = 0;  // since boot, /proc/PID/stat
  // In which alone `pid` means something (ports::own_namespace); 0: an older dslaunch wrote it, taken for this one.
  uint64_t pid_namespace = 0;
  bool operator==(const ProcessOnHost&) const = default;
};

ProcessOnHost this_process();

enum class Presence {
  kAlive,
  kGone,
  kElsewhere,  // on another machine that shares a home folder with this one, or in another container: not known here
};
Presence presence_of(const ProcessOnHost& process);

// To signal it, and to wait for its end. Empty when this very process is gone or elsewhere.
std::optional<spawn::HeldProcess> open_process(const ProcessOnHost& process);

// Stopped by a signal (Ctrl-Z): it answers nobody.
bool is_suspended(const ProcessOnHost& process);

}  // namespace dslaunch::launch
