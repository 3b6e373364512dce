// Which parameters use which optimizer settings: matches the groups of the config with the parameter names of the
// model. Pure.
#pragma once
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::optim {

struct OptimizerGroup {
  std::string name;  // "default", "no_decay" or the config's; Muon's matrices add "/muon"
  config::Optimizer settings;
  bool is_muon = false;  // whole matrices are orthogonalized
};

struct OptimizerGroups {
  std::vector<OptimizerGroup> groups;  // in the order of scheduler lists; a group may have no parameters
  std::vector<int> of_parameter;       // by index in the table
  int default_group = 0;               // its learning rate is displayed
};

// The first match wins; a parameter that no pattern matches is in the default group, which comes last. With Muon each
// group occurs twice: its matrices (2 or more dims, and neither embed nor lm_head in the name, unless use_muon says
// otherwise), then the rest. Throws UserError 65 for a pattern that matches no parameter, with the most similar names.
OptimizerGroups plan_optimizer_groups(const config::Optimizer& settings, const ParameterTable& table);

// OptimizerGroups::default_group, which does not depend on the model.
int default_group_of(const config::Optimizer& settings);

// Whether a pattern of the config matches this parameter: "ndim<2" and similar by its dims, everything else as a shell
// pattern (*, ?, [...]; a * also matches dots) over the whole name or one of its aliases.
bool matches_pattern(const std::string& pattern, const ParameterInfo& parameter);

}  // namespace dslaunch::runtime::optim
