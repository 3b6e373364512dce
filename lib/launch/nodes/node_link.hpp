// Opens the link to each node's agent, as planned. All links are opened in parallel.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.hpp"
#include "spawn/agent_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::launch {

// `own_program`: the running dslaunch, absolute. `args`: options of `dslaunch agent`. `inherited`: a descriptor that
// the agent of this machine gets under the same number; -1: none. Returns at once, also while a connection is still
// being established. Not for Reach::kNodeJoin.
std::unique_ptr<spawn::AgentLink> open_node_link(const PlannedNode& node, const ReachOptions& options,
                                                 const std::string& own_program, const std::vector<std::string>& args,
                                                 int inherited = -1);

// The path of a node's agent program: the pushed copy, in --remote_path, or the same path as here.
std::string agent_program(const PlannedNode& node, const ReachOptions& options, const std::string& own_program);

// The SSH destination of a node.
spawn::SshTarget ssh_target(const PlannedNode& node);

}  // namespace dslaunch::launch
