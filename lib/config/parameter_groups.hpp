// optimizer.param_groups and optimizer.no_decay: parameters with optimizer settings of their own.
#pragma once
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// In the order given.
std::vector<std::string> parameter_group_names(const Settings& settings);
std::string parameter_group_path(const std::string& group, const char* name);
// The number of groups in the optimizer, to check the length of schedules' lists: the named groups, no_decay, the
// default group; with Muon twice that number.
size_t num_optimizer_groups(const Settings& settings);

std::vector<ParameterGroup> parameter_groups(const Settings& settings);
// Adds errors for groups without patterns, settings that the optimizer does not accept, and invalid patterns.
void check_parameter_groups(Settings& settings, const std::string& optimizer);

}  // namespace dslaunch::config
