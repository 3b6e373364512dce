// The job file as a run writes it down, beside its metrics and into checkpoints: what it leaves to "auto" and only the
// model, the device and the data tell is filled in. Pure.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "config/job_config.hpp"

namespace dslaunch::runtime {

struct SolvedSettings {
  at::ScalarType compute_dtype = at::kFloat;
  config::Zero zero;        // its sizes solved (sharding_choice.hpp)
  int64_t total_steps = 0;  // of the run; 0: it has none
};

// `resolved`: what config::resolved_json() gave. Values that it has already stay as they are.
std::string with_solved_settings(const std::string& resolved, const SolvedSettings& solved);

}  // namespace dslaunch::runtime
