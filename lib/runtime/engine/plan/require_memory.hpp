// Before a run allocates anything: whether it will fit, as far as that is known. One thread.
#pragma once
#include <string>

#include "config/job_config.hpp"
#include "runtime/engine/plan/plan_rank.hpp"
#include "runtime/memory_plan/rank_memory.hpp"

namespace dslaunch::runtime::engine::plan {

// Of the device that is there and of this host.
memory_plan::Capacity read_capacity(at::Device device, int ranks_of_host);

// Throws UserError(69), with the plan's numbers, when the state alone exceeds what the GPU or, on CPU ranks, the host
// has. (Offloaded state has a check of its own where it is allocated: offload::require_host_memory().) Returns a
// warning for the user when only the estimate with activations does; empty: none.
std::string require_memory(const PlannedModel& model, const config::JobConfig& config, const PlannedRank& rank,
                           const memory_plan::Capacity& capacity, int64_t estimated_activations);

}  // namespace dslaunch::runtime::engine::plan
