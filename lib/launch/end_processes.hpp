// Ends processes that were looked at before: SIGTERM to all, one wait for all, SIGKILL for what is left. Each is held
// by a descriptor, and before each signal its time of start is compared again, so that a later process with the same
// number is never hit. Blocks for up to `patience` and five seconds. Any thread.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "ports/process_info.hpp"

namespace dslaunch::launch {

struct EndOutcome {
  bool gone = false;
  std::string text;  // "ended", "killed", "had ended already", or why it is still there
};

// One outcome for each, in their order.
std::vector<EndOutcome> end_processes(const std::vector<ports::ProcessIdentity>& processes,
                                      std::chrono::milliseconds patience);

}  // namespace dslaunch::launch
