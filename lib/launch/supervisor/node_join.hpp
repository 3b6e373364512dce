// One externally started dslaunch on every node (--no_ssh, a task of srun, a pod): node rank 0 is the launcher; the
// other nodes connect to its master port over TCP and are its agents.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/described_error.hpp"
#include "base/unique_fd.hpp"
#include "launch/channel/message.hpp"
#include "launch/plan/hosts.hpp"
#include "launch/plan/launch_options.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

// Node rank 0: the other nodes, by node rank from 1, with what they offer; the links are ready for a supervisor.
struct Gathered {
  UniqueFd listener;  // of the master port, reused by later gatherings
  std::vector<AgentHello> hellos;
  std::vector<std::unique_ptr<spawn::AgentLink>> links;
};
// Reports missing nodes every 10 s. Throws UserError(69) for a port that is taken and for a node without a greeting,
// TimeoutError naming the nodes that have not connected; `gathered` then has the links to those that have.
void gather_nodes(const NodeMembership& membership, Gathered& gathered, Deadline deadline);

// The message that externally started nodes receive, and exit with, when node rank 0 cannot continue.
JobEnded failure_message(const DescribedError& why);
// Sends `job_ended` over links that no supervisor uses yet, and closes them; a null link is in use by a supervisor.
void dismiss_nodes(std::vector<std::unique_ptr<spawn::AgentLink>>& links, const JobEnded& job_ended);

// Any other node: connects to node rank 0 and is its agent, again for each restart, until node rank 0 ends or cannot be
// reached for --lost_after (UserError 69). Returns the job's exit code.
int serve_as_node(const NodeMembership& membership, const AgentHello& offer, const LaunchOptions& options);

}  // namespace dslaunch::launch
