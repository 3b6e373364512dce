// Ends processes that were examined before: SIGTERM to all, one wait for all, SIGKILL for the rest. Each is held by a
// descriptor, and its start time is compared again before each signal, so that a later process with the same pid is
// never hit. Blocks for up to `timeout` and five seconds. Any thread.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "ports/process_info.hpp"

namespace dslaunch::launch {

struct EndOutcome {
  bool gone = false;
  std::string text;  // "ended", "killed", "had ended already", or why the process is still there
};

// One outcome per process, in the given order.
std::vector<EndOutcome> end_processes(const std::vector<ports::ProcessIdentity>& processes,
                                      std::chrono::milliseconds timeout);

}  // namespace dslaunch::launch
