// Nodes that no launcher can reach connect to node rank 0 by themselves, at the master port, before node rank 0 serves
// its store there. They perform the ranks' handshake with the store (docs/wire.md), using their node rank and the
// number of nodes. Without a shared token the handshake shows only that both sides know the protocol.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::rendezvous {

struct JoinedNode {
  int node_rank = 0;
  UniqueFd connection;  // non-blocking; the caller owns all further traffic on it
};

// Waits for the nodes 1 .. num_nodes-1. `listener` is borrowed, bound and listening. A connection that does not prove
// itself within 5 s is dropped; one that cannot belong to this job (wrong token, different number of nodes, a node rank
// that is already connected) is answered with the reason; a node that disconnects while others are missing counts as
// missing again. `on_wait` gets the missing node ranks every 10 s. Returns the nodes by node rank; not all of them when
// the deadline has passed. One thread.
std::vector<JoinedNode> await_nodes(int listener, const std::vector<uint8_t>& token, int num_nodes, Deadline deadline,
                                    const std::function<void(const std::vector<int>&)>& on_wait);

// How another node reaches node rank 0.
struct MasterEndpoint {
  std::string host;
  uint16_t port = 0;
  std::vector<uint8_t> token;
  int node_rank = 0, num_nodes = 1;
  // Not empty: this node has met node rank 0 before, which holds the port for as long as it lives. If its host keeps
  // refusing connections, or cannot be reached for this long, node rank 0 has ended.
  std::optional<std::chrono::milliseconds> lost_after;
};

// Tries until the deadline. Calls `on_wait` every 10 s. Throws TimeoutError; UserError: 69, 78 when node rank 0 refuses
// this node, 69 when node rank 0 has ended.
UniqueFd connect_to_master(const MasterEndpoint& master, Deadline deadline, const std::function<void()>& on_wait);

}  // namespace dslaunch::rendezvous
