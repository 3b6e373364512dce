// Stuck processes in the JSON that other programs read: job.json, `jobs`, `stop` and the report of --json.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "launch/records/stuck_on_host.hpp"

namespace dslaunch::launch {

// The reason that the process is stuck: state and wait channel.
nlohmann::ordered_json stuck_to_json(const spawn::StuckProcess& process);
nlohmann::ordered_json stuck_to_json(const std::vector<StuckOnHost>& all);
// Throws nlohmann's exceptions.
std::vector<StuckOnHost> stuck_from_json(const nlohmann::ordered_json& list);

}  // namespace dslaunch::launch
