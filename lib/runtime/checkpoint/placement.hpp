// The location of a rank in the job: the information that saving and loading on several hosts needs.
#pragma once
#include <string>

namespace dslaunch::runtime {

struct Placement {
  int rank = 0, world_size = 1;
  int local_rank = 0;  // 0 is the node's leader: it inspects directories for the others
  int node = 0, num_nodes = 1;
  std::string host;          // the node's name, for messages
  int local_world_size = 1;  // ranks of the node

  bool leads_node() const { return local_rank == 0; }
};

}  // namespace dslaunch::runtime
