// After agents were lost: ends the processes that their ranks left behind on their hosts, including this machine.
#pragma once
#include <string>
#include <vector>

#include "launch/plan/launch_plan.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::launch {

struct NodeCleanup {
  std::vector<std::string> unreached;           // hosts
  std::vector<spawn::StuckProcess> stuck_here;  // on this machine, if it was one of the nodes
};

// On all of `nodes` in parallel, each through a fresh agent that does nothing else; takes a few seconds at most.
NodeCleanup cleanup_nodes(const std::vector<PlannedNode>& nodes, const LaunchPlan& plan,
                          const std::string& own_program);

// What the cleanup agent runs: kills every process of the job on this host, and removes the job's private directories.
// Returns the processes that SIGKILL does not end.
std::vector<spawn::StuckProcess> cleanup_this_host(const std::string& job_id);

}  // namespace dslaunch::launch
