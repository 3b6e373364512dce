// data.synthetic: arrays that are generated instead of read.
#pragma once
#include <vector>

#include "base/result.hpp"
#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// In the order of the file, defaults filled in, `like` not resolved.
std::vector<ArraySpec> synthetic_arrays(const Settings& settings);
// Whether a number x of the array's type has low <= x < high for every such x that is drawn: the failure says why not.
Result<> check_range(const ArraySpec& array);
// Adds errors for arrays without a shape, empty ranges, and a `like` that names no array, itself or a cycle.
void check_synthetic(Settings& settings);

}  // namespace dslaunch::config
