// A process of a job that SIGKILL did not end, and its host; also in the JSON that other programs read: job.json,
// `jobs`, `stop` and the report of --json. Plain data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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

// The reason that the process is stuck: state and wait channel.
nlohmann::ordered_json stuck_to_json(const spawn::StuckProcess& process);
nlohmann::ordered_json stuck_to_json(const std::vector<StuckOnHost>& all);
// Throws nlohmann's exceptions.
std::vector<StuckOnHost> stuck_from_json(const nlohmann::ordered_json& list);

}  // namespace dslaunch::launch
