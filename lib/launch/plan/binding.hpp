// Which cores each rank of a node runs on, which NUMA node its memory comes from, and how many threads it computes
// with. Facts of the machine in, a plan out; the agent of the node asks, and spawn::start_process carries it out. Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/binding_request.hpp"
#include "launch/plan/topology.hpp"

namespace dslaunch::launch {

struct RankBinding {
  std::vector<int> cpus;           // ascending; empty: wherever the agent may run
  std::optional<int> memory_node;  // nothing: where the kernel finds best
  int num_threads = 1;             // for OMP_NUM_THREADS, where the user has not set it
};

// The kind that torchrun's --numa_binding names (node, socket, exclusive, core-complex), or "none". Throws
// UserError(64) for another word.
BindingKind read_numa_binding(std::string_view word);

// Throws UserError(64), with the column, when --bind_core_list is no ascending list of cores and ranges.
std::vector<int> read_core_list(const std::string& text);

// One entry a local rank of `visible_devices`: its CUDA_VISIBLE_DEVICES (one device, or all of the node of which it
// takes the one of its local rank), empty for a CPU rank. CPU ranks of --numa_binding are spread over the NUMA nodes.
// Every CPU of the result is one of the topology's. Throws UserError: 69 when there are fewer cores than ranks, cores
// of the list that may not be used here, or a GPU whose node is unknown or closed to us.
std::vector<RankBinding> plan_binding(const BindingRequest& request, const Topology& topology,
                                      const std::vector<std::string>& visible_devices);

// Throws UserError(78) when cores are to be bound and the OpenMP run time of the ranks was told to do so itself.
void check_binding_environment(const BindingRequest& request, const std::map<std::string, std::string>& env);

// "cpus 0-7, memory of NUMA node 0, 8 threads".
std::string describe(const RankBinding& binding);

}  // namespace dslaunch::launch
