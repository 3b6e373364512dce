// The rules that look at several keys at once: what data needs, what ZeRO's old names stand for.
#pragma once
#include <cstdint>
#include <string>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// Needs a complete() table. Solves what depends on other keys, complains about contradictions.
void apply_rules(Settings& settings);

// Solves the batch triple for that many data-parallel ranks; complains where it has no solution. Returns the
// explanation in numbers, empty without a solution.
std::string apply_batch(Settings& settings, int64_t world);

// The typed sections of a table to which the rules were applied and which has no issues.
JobConfig build_job_config(const Settings& settings);

}  // namespace dslaunch::config
