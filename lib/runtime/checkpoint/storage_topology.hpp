// Do all ranks see one folder, or does every node have its own? Asked before the first step of a job on several hosts:
// a checkpoint that half of the ranks write elsewhere would fail hours later.
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

// Who makes and publishes checkpoints in the folder that this rank sees.
struct CheckpointStorageTopology {
  int leader = 0;
  std::vector<int> leaders{0};  // of all the folders that stand behind the path, ascending; rank 0 is one

  bool is_one_folder() const { return leaders.size() == 1; }
};

// All ranks call it. Finds out by files with names that nobody else can have put there. Makes `dir` where it is
// missing. With `own_folders` every node may have a folder of its own, and where nodes see one folder they share it;
// without, all ranks have to see that of rank 0. `watch`, which may be null, tells of long waits. Throws UserError(73)
// on all ranks, naming those that see none; SystemError(73) when the folder cannot be made; TimeoutError on all ranks,
// naming one that does not come.
CheckpointStorageTopology detect_storage_topology(const std::string& dir, bool own_folders, const Placement& placement,
                                                  rendezvous::Store& store, Deadline deadline, comm::Watchdog* watch);

}  // namespace dslaunch::runtime
