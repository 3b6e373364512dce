// Opens the way to each node's agent, as the plan says. All ways are made at the same time.
#pragma once
#include <memory>
#include <string>

#include "launch/launch_plan.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

// `own_program`: the running dslaunch, absolute. `listener`: a socket that the agent of this machine takes over as its
// descriptor 3; -1: none. Returns at once, also where a connection is still being made. Not for Reach::kDialIn.
std::unique_ptr<spawn::AgentLink> open_node_link(const PlannedNode& node, const ReachOptions& options,
                                                 const std::string& own_program, int listener);

// What srun runs on a node: one task that may use everything the job has there.
std::vector<std::string> srun_argv(const std::string& host, const std::string& agent_program);

}  // namespace dslaunch::launch
