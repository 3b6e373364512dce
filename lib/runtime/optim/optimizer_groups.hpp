// Which parameters are stepped with which settings: the groups of the config matched with the names of the model.
// Pure.
#pragma once
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::optim {

struct OptimizerGroup {
  std::string name;  // "default", "no_decay" or the config's; Muon's matrices add "/muon"
  config::Optimizer settings;
  bool is_muon = false;  // whole matrices are orthogonalised
};

struct OptimizerGroups {
  std::vector<OptimizerGroup> groups;  // in the order of scheduler lists; a group may have no parameters
  std::vector<int> of_parameter;       // by index in the table
  int default_group = 0;               // whose learning rate is shown
};

// First match wins; what no pattern matches is in the default group, which stands last. With Muon each group comes
// twice: its matrices (2 and more dims, and neither embed nor lm_head in the name, unless use_muon says otherwise),
// then the rest. Throws UserError 65 for a pattern that matches no parameter, with the names nearest to it.
OptimizerGroups plan_optimizer_groups(const config::Optimizer& settings, const ParameterTable& table);

// Whether a pattern of the config means this parameter: "ndim<2" and the like by its dims, everything else as a shell
// pattern (*, ?, [...]; a * also stands for dots) over the whole name or one of its aliases.
bool matches_pattern(const std::string& pattern, const ParameterInfo& parameter);

}  // namespace dslaunch::runtime::optim
