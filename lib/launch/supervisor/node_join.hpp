// One dslaunch on every node, started by somebody else (--no_ssh, a task of srun, a pod): node rank 0 is the launcher,
// the others come to it over TCP, to the master port, and are its agents.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/described_error.hpp"
#include "base/unique_fd.hpp"
#include "launch/channel/message.hpp"
#include "launch/launch_options.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

// Where this process stands among the nodes.
struct NodePlace {
  int node_rank = 0, num_nodes = 1;
  std::string master_addr;
  uint16_t master_port = 0;
  // Shared by all nodes (DSLAUNCH_TOKEN): they prove it to each other. Empty: whoever reaches the port first is a node.
  std::vector<uint8_t> token;
};

// DSLAUNCH_TOKEN of the environment. Throws UserError(78) when it is not 64 hexadecimal digits.
std::vector<uint8_t> shared_token();

// Node rank 0: the other nodes, by node rank from 1, with what they offer; the ways to them are ready for a supervisor.
struct Gathered {
  UniqueFd listener;  // of the master port, for further gatherings too
  std::vector<AgentHello> hellos;
  std::vector<std::unique_ptr<spawn::AgentLink>> links;
};
// Says every 10 s who is missing. Throws UserError(69) for a port that is taken and for a node that does not greet,
// TimeoutError naming the nodes that have not come; `gathered` has the ways to those that have.
void gather_nodes(const NodePlace& place, Gathered& gathered, Deadline deadline);

// What nodes that came by themselves hear, and end with, when node rank 0 cannot go on.
JobEnded failure_message(const DescribedError& why);
// To ways that no supervisor has begun to use (null: one has): they end with it.
void dismiss_nodes(std::vector<std::unique_ptr<spawn::AgentLink>>& links, const JobEnded& last_word);

// Any other node: goes to node rank 0 and is its agent, again for each restart, until node rank 0 ends or cannot be
// reached for --lost_after (UserError 69). The job's exit code.
int serve_as_node(const NodePlace& place, const AgentHello& offer, const LaunchOptions& options);

}  // namespace dslaunch::launch
