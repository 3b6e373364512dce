// data.synthetic: arrays that are made up instead of read.
#pragma once
#include <vector>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// In the order of the file, defaults filled in, `like` not followed.
std::vector<ArraySpec> synthetic_arrays(const Settings& settings);
// Complains about arrays without a shape, empty ranges, and `like` that names nothing, itself or a circle.
void check_synthetic(Settings& settings);

}  // namespace dslaunch::config
