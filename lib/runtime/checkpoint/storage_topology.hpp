// Whether all ranks see one directory, or every node has its own. Checked before the first step of a job on several
// hosts: a checkpoint that half of the ranks write elsewhere would fail hours later.
#pragma once
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/checkpoint/placement.hpp"

namespace dslaunch::rendezvous {
class Store;
}
namespace dslaunch::comm {
class Watchdog;
}

namespace dslaunch::runtime {

// The leaders that create and publish checkpoints in the directories.
struct CheckpointStorageTopology {
  int leader = 0;
  std::vector<int> leaders{0};  // of all directories behind the path, ascending; includes rank 0

  bool is_single_directory() const { return leaders.size() == 1; }
};

// All ranks call it. Uses files with unique names to find out which ranks share a directory. Creates `dir` if it does
// not exist. With `per_node` every node may have its own directory, and nodes that see the same directory share it;
// without, all ranks have to see rank 0's directory. `watch`, which may be null, reports long waits. Throws
// UserError(73) on all ranks, naming ranks that see no directory; SystemError(73) when the directory cannot be created;
// TimeoutError on all ranks, naming a rank that does not respond.
CheckpointStorageTopology detect_storage_topology(const std::string& dir, bool per_node, const Placement& placement,
                                                  rendezvous::Store& store, Deadline deadline, comm::Watchdog* watch);

}  // namespace dslaunch::runtime
