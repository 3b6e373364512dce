// One factory per backend; make_communicator() chooses. A backend that was left out of the build has a no_x.cpp, whose
// factory reports that.
#pragma once
#include <memory>

#include "comm/communicator.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_single(const CommunicatorOptions& options, rendezvous::Store& store);
std::unique_ptr<Communicator> make_gloo(const CommunicatorOptions& options, rendezvous::Store& store);
std::unique_ptr<Communicator> make_nccl(const CommunicatorOptions& options, rendezvous::Store& store);

// The prefix of this communicator's keys in the store: a group that is created again finds no stale keys.
std::string fresh_key_prefix(const CommunicatorOptions& options, rendezvous::Store& store, Deadline deadline);

// The type of dslaunch_make_gloo and dslaunch_make_nccl, which the modules export.
using ModuleFactory = Communicator* (*)(const CommunicatorOptions&, rendezvous::Store&);

}  // namespace dslaunch::comm
