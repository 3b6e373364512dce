// The job file as a run records it, beside its metrics and in checkpoints: settings that the job file leaves to "auto"
// and that depend on the model, the device or the data are filled in. Pure.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::engine::run {

struct SolvedSettings {
  at::ScalarType compute_dtype = at::kFloat;
  config::Zero zero;        // with its "auto" sizes computed (sharding_choice.hpp)
  int64_t total_steps = 0;  // of the run; 0: no fixed number
  // Of a pipeline: the first layer of every stage after the first, which may have been measured.
  std::vector<size_t> first_layers = {};
};

// `resolved`: the result of config::resolved_json(). Values that are already set stay unchanged.
std::string with_solved_settings(const std::string& resolved, const SolvedSettings& solved);

// The values of keys (dotted), as JSON, in the same order; without those that are null or still "auto".
std::vector<std::pair<std::string, std::string>> values_of(const std::string& resolved,
                                                           const std::vector<std::string>& keys);

}  // namespace dslaunch::runtime::engine::run
