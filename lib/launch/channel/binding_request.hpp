// The user's options for cores and memory: sent to every node, where the agent plans the binding (binding.hpp).
#pragma once
#include <cstdint>
#include <string>
#include <tuple>

#include "launch/channel/field_list.hpp"

namespace dslaunch::launch {

enum class BindingKind : uint8_t {
  kDefault = 0,    // a rank with a GPU runs on the GPU's NUMA node, if the machine has several
  kNone = 1,       // no rank is bound
  kCores = 2,      // --bind_cores_to_rank: equal consecutive shares of the physical cores, memory from their NUMA node
  kNode = 3,       // --numa_binding: all CPUs of the GPU's NUMA node
  kSocket = 4,     // ... all CPUs of its socket
  kExclusive = 5,  // ... for each rank, a share of the cores of its GPU's NUMA node
  kCoreComplex = 6,  // ... the CPUs of one last-level cache of that NUMA node
};

struct BindingRequest {
  BindingKind kind = BindingKind::kDefault;
  std::string core_list;  // kCores: --bind_core_list as written; empty: all physical cores

  static constexpr auto kFields =
      std::tuple(up_to(BindingKind::kCoreComplex, &BindingRequest::kind), &BindingRequest::core_list);
};

}  // namespace dslaunch::launch
