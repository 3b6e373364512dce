// From the plan to what one node's agent is told. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// `master_addr`: see choose_master_address.
JobDescription describe_job(const LaunchPlan& plan, const PlannedNode& node, const std::vector<uint8_t>& token,
                            const std::string& master_addr);

// Where the ranks meet: the plan's address; on one machine 127.0.0.1; else what node rank 0 said of itself in its
// greeting (`node_0_address`), or its name in the hostfile where it did not know.
std::string choose_master_address(const LaunchPlan& plan, const std::string& node_0_address);

// Where an agent is to be found, as a number: nothing there is for a name service to look up. Empty: it knows none.
std::string numeric_address_of(const AgentHello& hello);

// Once all agents have greeted: "auto" becomes cuda when every node has devices and cpu when none has, and the ranks of
// GPU jobs on other machines get theirs. `hellos` by node. Throws UserError(69) for nodes that do not fit together, or
// have fewer devices than slots are used.
void settle_devices(LaunchPlan& plan, const std::vector<AgentHello>& hellos);

}  // namespace dslaunch::launch
