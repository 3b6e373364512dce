// Which cores each rank of a node runs on, which NUMA node its memory is allocated from, and how many threads it uses.
// Maps facts about the machine to a plan; the node's agent requests the plan, and spawn::start_process applies it.
// Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/channel/binding_request.hpp"
#include "launch/plan/topology.hpp"

namespace dslaunch::launch {

struct RankBinding {
  std::vector<int> cpus;           // ascending; empty: all CPUs that the agent may use
  std::optional<int> memory_node;  // empty: the kernel's default policy
  int num_threads = 1;             // for OMP_NUM_THREADS, unless the user has set it
};

// The kind that torchrun's --numa_binding names (node, socket, exclusive, core-complex), or "none". Throws
// UserError(64) for any other word.
BindingKind read_numa_binding(std::string_view word);

// Throws UserError(64), with the column, when --bind_core_list is not an ascending list of cores and ranges.
std::vector<int> read_core_list(const std::string& text);

// `visible_devices` has one entry per local rank: its CUDA_VISIBLE_DEVICES (either one device, or all devices of the
// node, from which the rank takes the one at its local rank), empty for a CPU rank. CPU ranks of --numa_binding are
// spread over the NUMA nodes. Every CPU of the result is in the topology. Throws UserError(69) for fewer cores than
// ranks, for cores of the list that this process may not use, or for a GPU whose NUMA node is unknown or has no usable
// CPU.
std::vector<RankBinding> plan_binding(const BindingRequest& request, const Topology& topology,
                                      const std::vector<std::string>& visible_devices);

// Throws UserError(78) when cores are to be bound and the environment tells the ranks' OpenMP runtime to bind them,
// too.
void check_binding_environment(const BindingRequest& request, const std::map<std::string, std::string>& env);

// "cpus 0-7, memory of NUMA node 0, 8 threads".
std::string describe(const RankBinding& binding);

}  // namespace dslaunch::launch
