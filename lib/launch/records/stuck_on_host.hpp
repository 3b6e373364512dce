// A process of a job that SIGKILL did not end, and its host. Plain data.
#pragma once
#include <string>

#include "spawn/stuck_process.hpp"

namespace dslaunch::launch {

struct StuckOnHost {
  int rank = -1;         // -1: a process that a rank left behind
  std::string host;      // as the user wrote it
  bool is_here = false;  // the host is the supervisor's
  spawn::StuckProcess process;
  bool operator==(const StuckOnHost&) const = default;
};

// "rank 1 on node2: process 4711 is stuck in the kernel (...) ..."
std::string describe(const StuckOnHost& stuck);

}  // namespace dslaunch::launch
