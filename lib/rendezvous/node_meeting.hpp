// The nodes of a job that no launcher can reach come to node rank 0 by themselves, to the master port, before its store
// is served there. They shake hands as ranks do with the store (docs/wire.md), with their node rank and the number of
// nodes; without a shared token the handshake shows only that both know the protocol.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::rendezvous {

struct MetNode {
  int node_rank = 0;
  UniqueFd connection;  // non-blocking; what comes next on it is the caller's
};

// Waits for the nodes 1 .. num_nodes-1. `listener` is borrowed, bound and listening. A connection that does not prove
// itself within 5 s is dropped; one that cannot belong to this job (wrong token, other number of nodes, a node rank
// that is there already) is told so; a node that goes away while others are missing is missing again. `on_wait`, every
// 10 s: the node ranks that are missing. By node rank; not all of them when the deadline has passed. One thread.
std::vector<MetNode> meet_nodes(int listener, const std::vector<uint8_t>& token, int num_nodes, Deadline deadline,
                                const std::function<void(const std::vector<int>&)>& on_wait);

// From another node to node rank 0.
struct MasterEndpoint {
  std::string host;
  uint16_t port = 0;
  std::vector<uint8_t> token;
  int node_rank = 0, num_nodes = 1;
  // Not empty: node rank 0 was met before. It holds the port for as long as it lives: when its host goes on refusing,
  // or nothing is reached for so long, it has ended.
  std::optional<std::chrono::milliseconds> lost_after;
};

// Tries until the deadline. `on_wait`, every 10 s. Throws TimeoutError; UserError: 69, 78 when it is refused, 69 when
// node rank 0 has ended.
UniqueFd connect_to_master(const MasterEndpoint& way, Deadline deadline, const std::function<void()>& on_wait);

}  // namespace dslaunch::rendezvous
