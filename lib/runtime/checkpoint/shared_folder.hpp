// Do all ranks see one folder? Asked before the first step of a job on several hosts: a checkpoint that half of the
// ranks write elsewhere would fail hours later.
#pragma once
#include <string>

#include "base/deadline.hpp"

namespace dslaunch::rendezvous {
class Store;
}

namespace dslaunch::runtime {

// All ranks call it. Makes `dir` where it is missing, on rank 0's host. Throws UserError(73) on all of them, naming the
// ranks that do not see it; SystemError(73) when rank 0 cannot make it.
void require_shared_folder(const std::string& dir, int rank, int world_size, rendezvous::Store& store,
                           Deadline deadline);

}  // namespace dslaunch::runtime
