// What the user asked for about cores and memory: travels to every node, whose agent plans (binding.hpp).
#pragma once
#include <cstdint>
#include <string>

namespace dslaunch::launch {

enum class BindingKind : uint8_t {
  kDefault = 0,      // a rank with a GPU runs on the GPU's NUMA node, where there are several
  kNone = 1,         // no rank is placed
  kCores = 2,        // --bind_cores_to_rank: equal consecutive shares of the physical cores, memory of their node
  kNode = 3,         // --numa_binding: all CPUs of the GPU's NUMA node
  kSocket = 4,       // ... of its socket
  kExclusive = 5,    // ... a share of its node's cores for each rank there
  kCoreComplex = 6,  // ... the CPUs of one last-level cache of its node
};
constexpr BindingKind kLastBindingKind = BindingKind::kCoreComplex;

struct BindingRequest {
  BindingKind kind = BindingKind::kDefault;
  std::string core_list;  // kCores: --bind_core_list as written; empty: all physical cores
};

}  // namespace dslaunch::launch
