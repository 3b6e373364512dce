// One factory a backend; make_communicator() chooses. A backend that was left out of the build is a no_x.cpp whose
// factory says so.
#pragma once
#include <memory>

#include "comm/communicator.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_single(const CommunicatorOptions& options, rendezvous::Store& store);
std::unique_ptr<Communicator> make_gloo(const CommunicatorOptions& options, rendezvous::Store& store);
std::unique_ptr<Communicator> make_nccl(const CommunicatorOptions& options, rendezvous::Store& store);

// The prefix of this communicator's keys in the store: a group that is made again finds no stale ones.
std::string fresh_key_prefix(const CommunicatorOptions& options, rendezvous::Store& store, Deadline deadline);

// What a module exports as dslaunch_make_gloo or dslaunch_make_nccl.
using ModuleFactory = Communicator* (*)(const CommunicatorOptions&, rendezvous::Store&);

}  // namespace dslaunch::comm
