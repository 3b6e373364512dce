// The hosts and slots of a job: hostfile, a scheduler's allocation or this machine, then the counts, then the filters.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "hostfile/allocation.hpp"
#include "hostfile/host_options.hpp"

namespace dslaunch::hostfile {

struct Request {
  HostOptions asked;                    // its hostfile wins over `allocated`
  std::optional<Allocation> allocated;  // by a scheduler; without both the job runs on this machine, named "localhost"
  bool allocated_slots_open = false;    // the scheduler does not say how many slots a host has: num_gpus may
  std::vector<int> local_slots{0};      // without a hostfile: the devices of this machine, ascending
  bool any_local_slots = false;         // ... or, for CPU ranks, as many slots as the options ask for
};

// Throws UserError(69) when more GPUs a host are asked for than a host may have.
void require_possible_slots(const HostOptions& asked);

// Reads the hostfile, nothing else. Throws UserError: 66 hostfile missing; 65 bad file or filter; 64 a count below 1,
// or options that exclude each other; 69 more nodes or slots asked for than there are.
Allocation resolve(const Request& request);

// {"source": ..., "world_size": N, "hosts": [{"host": ..., "user": ..., "port": ..., "slots": [0, 1]}, ...]} in launch
// order; user and port are null where the hostfile names none.
std::string hosts_json(const Allocation& allocation);

}  // namespace dslaunch::hostfile
