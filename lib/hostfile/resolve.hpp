// The hosts and slots of a job: from hostfile, a scheduler's allocation or this machine; then the counts and the
// filters apply.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "hostfile/allocation.hpp"
#include "hostfile/host_options.hpp"

namespace dslaunch::hostfile {

struct Request {
  HostOptions asked;                    // its hostfile overrides `allocated`
  std::optional<Allocation> allocated;  // by a scheduler; with neither, the job runs on this machine, named "localhost"
  bool allocated_slots_open = false;    // the scheduler does not state the slots per host: num_gpus may
  std::vector<int> local_slots{0};      // without a hostfile: the devices of this machine, ascending
  bool any_local_slots = false;         // ... or, for CPU ranks, as many slots as the options request
};

// Throws UserError(69) when more GPUs per host are requested than a host can have.
void require_possible_slots(const HostOptions& asked);

// Reads the hostfile, nothing else. Throws UserError: 66 hostfile missing; 65 invalid file or filter; 64 a count below
// 1, or options that exclude each other; 69 more nodes or slots requested than exist.
Allocation resolve(const Request& request);

// {"source": ..., "world_size": N, "hosts": [{"host": ..., "user": ..., "port": ..., "slots": [0, 1]}, ...]} in launch
// order; user and port are null if the hostfile names none.
std::string hosts_json(const Allocation& allocation);

}  // namespace dslaunch::hostfile
