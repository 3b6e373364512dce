// The resources of the machine that this process may use: CPUs by core, cache, package and NUMA node, the CPU quota of
// the cgroup, and the NUMA nodes of the GPUs. This file reads; binding.hpp decides.
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
  int node = 0;     // NUMA node
};

struct GpuPlace {
  std::string uuid;
  int node = -1;  // NUMA node; -1: not reported by the firmware
};

struct Topology {
  std::vector<Cpu> cpus;          // that this process may run on, ascending
  double quota_cores = 0;         // CPU quota of the cgroup in cores, for instance 1.5; 0: no limit
  std::vector<int> memory_nodes;  // NUMA nodes that memory can be bound to; empty: binding is not possible
  std::vector<GpuPlace> gpus;     // in NVML's order
};

// Reads /sys and /proc below `root` ("" outside tests) for the CPUs `allowed`. If something cannot be read, assumes one
// NUMA node and no hyperthreads, and does not throw. Leaves `memory_nodes` and `gpus` empty.
Topology read_topology(const std::string& root, const std::vector<int>& allowed);

// NUMA nodes of the GPUs, found by PCI address.
std::vector<GpuPlace> place_gpus(const std::string& root, const std::vector<Gpu>& gpus);

// CPU quota in cores set by the cgroups of `proc_self_cgroup` (the text of /proc/self/cgroup) and their ancestors, v1
// and v2; 0: no limit.
double read_cpu_quota(const std::string& root, std::string_view proc_self_cgroup);

// Logical CPUs that this process may run on; at least 1.
int num_usable_cpus();

// This process and machine. GPUs are queried only if `with_gpus` is set and there is more than one NUMA node to choose
// from: initializing their driver takes time.
Topology topology_of_this_process(bool with_gpus);

}  // namespace dslaunch::launch
