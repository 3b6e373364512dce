// After agents that were lost: ends what their ranks left behind on their hosts, this one among them.
#pragma once
#include <string>
#include <vector>

#include "launch/plan/launch_plan.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::launch {

struct SweptNodes {
  std::vector<std::string> unreached;           // hosts
  std::vector<spawn::StuckProcess> stuck_here;  // on this machine, where it was one of the nodes
};

// On all of `nodes` at once, each through a fresh agent that does nothing else; within a few seconds.
SweptNodes cleanup_nodes(const std::vector<PlannedNode>& nodes, const LaunchPlan& plan, const std::string& own_program);

// What that agent does: kills every process of the job on this host, and removes the job's private folders. What
// SIGKILL does not end.
std::vector<spawn::StuckProcess> cleanup_this_host(const std::string& job_id);

}  // namespace dslaunch::launch
