// What this process may use of its machine: CPUs by core, cache, package and NUMA node, the cgroup's share of their
// time, and where the GPUs hang. Reading is here, deciding in binding.hpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/devices.hpp"

namespace dslaunch::launch {

// One logical CPU.
struct Cpu {
  int number = 0;
  int core = 0;     // lowest CPU of its physical core
  int cache = 0;    // lowest CPU that shares its last-level cache
  int package = 0;  // socket
  int node = 0;     // of NUMA
};

struct GpuPlace {
  std::string uuid;
  int node = -1;  // of NUMA; -1: the firmware does not say
};

struct Topology {
  std::vector<Cpu> cpus;          // that we may run on, ascending
  double quota_cores = 0;         // CPU time of the cgroup in cores, for instance 1.5; 0: no limit
  std::vector<int> memory_nodes;  // NUMA nodes that memory can be bound to; empty: it cannot be
  std::vector<GpuPlace> gpus;     // in NVML's order
};

// Reads /sys and /proc below `root` ("" outside tests) for the CPUs `allowed`. What cannot be read is taken as a
// machine with one NUMA node and no hyperthreads. Never throws for that. Leaves `memory_nodes` and `gpus` empty.
Topology read_topology(const std::string& root, const std::vector<int>& allowed);

// NUMA nodes of GPUs by their PCI addresses.
std::vector<GpuPlace> place_gpus(const std::string& root, const std::vector<Gpu>& gpus);

// CPU time in cores that the cgroups of `proc_self_cgroup` (the text of /proc/self/cgroup) and those above them allow,
// v1 and v2; 0: no limit.
double read_cpu_quota(const std::string& root, std::string_view proc_self_cgroup);

// Logical CPUs that this process may run on; at least 1.
int num_usable_cpus();

// This process and machine. GPUs are looked up only where `with_gpus` says so and there is more than one NUMA node to
// choose from: waking their driver takes time.
Topology topology_of_this_process(bool with_gpus);

}  // namespace dslaunch::launch
