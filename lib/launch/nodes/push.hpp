// --push: copies dslaunch's programs to hosts that do not have them, before the agents are started there.
#pragma once
#include <string>

#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// To all hosts of the plan that are reached through SSH, in parallel; records in the plan where the programs are on
// each host. `own_program`: the running dslaunch; the programs beside it are copied too. Throws UserError with a table
// when a host could not take them: 69, 77, or 124 for a timeout.
void push_programs(LaunchPlan& plan, const std::string& own_program);

}  // namespace dslaunch::launch
