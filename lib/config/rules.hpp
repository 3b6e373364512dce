// Rules that involve several keys: the requirements of data, the meaning of ZeRO's old key names.
#pragma once
#include <cstdint>
#include <string>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// Requires a complete() table. Resolves values that depend on other keys, adds errors for contradictions.
void apply_rules(Settings& settings);

// Solves the batch triple for `world` data-parallel ranks; adds an error if it has no solution. Returns the explanation
// in numbers, empty without a solution.
std::string apply_batch(Settings& settings, int64_t world);

// The typed sections from a table to which the rules were applied and that has no issues.
JobConfig build_job_config(const Settings& settings);

}  // namespace dslaunch::config
