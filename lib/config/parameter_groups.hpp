// optimizer.param_groups and optimizer.no_decay: which parameters are stepped with settings of their own.
#pragma once
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "config/settings.hpp"

namespace dslaunch::config {

// In the order in which they were given.
std::vector<std::string> parameter_group_names(const Settings& settings);
std::string parameter_group_path(const std::string& group, const char* name);
// As the optimizer has them, so that lists of schedules can be counted: the named ones, no_decay, the default group;
// with Muon each of them twice.
size_t num_optimizer_groups(const Settings& settings);

std::vector<ParameterGroup> parameter_groups(const Settings& settings);
// Complains about groups without patterns, settings that the optimizer does not take, and patterns that cannot be.
void check_parameter_groups(Settings& settings, const std::string& optimizer);

}  // namespace dslaunch::config
