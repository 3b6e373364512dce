// Derives from the plan the job description that one node's agent receives. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// `master_addr`: see choose_master_address.
JobDescription describe_job(const LaunchPlan& plan, const PlannedNode& node, const std::vector<uint8_t>& token,
                            const std::string& master_addr);

// The address at which the ranks meet: the plan's address; 127.0.0.1 when all ranks are on this machine; else the
// address that node rank 0 reported in its greeting (`node_0_address`), or its name in the hostfile when it did not
// report one.
std::string choose_master_address(const LaunchPlan& plan, const std::string& node_0_address);

// The agent's address as a number, so that no name service is needed to resolve it. Empty: the agent does not know one.
std::string numeric_address_of(const AgentHello& hello);

// Call once all agents have sent their greeting: "auto" becomes cuda when every node has devices and cpu when none has,
// and the GPU ranks on other machines are assigned their devices. `hellos` is indexed by node. Throws UserError(69)
// when the nodes' devices are inconsistent, or a node has fewer devices than slots in use.
void resolve_devices(LaunchPlan& plan, const std::vector<AgentHello>& hellos);

}  // namespace dslaunch::launch
