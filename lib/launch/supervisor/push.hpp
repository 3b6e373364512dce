// --push: our programs for hosts that do not have them, before the agents are started there.
#pragma once
#include <string>

#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// To all hosts of the plan that are reached through SSH, at once; notes in the plan where the programs lie there.
// `own_program`: the running dslaunch, whose neighbours are taken too. Throws UserError with a table when a host
// could not take them: 69, 77, or 124 where the time was over.
void push_programs(LaunchPlan& plan, const std::string& own_program);

}  // namespace dslaunch::launch
