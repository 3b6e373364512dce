// What tensor parallelism costs where a tensor group does not fit into one host. Pure.
#pragma once
#include <string>

#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// The warning about tensor groups whose ranks are on several hosts, with the hosts and the cost; empty: there are none.
std::string tensor_groups_over_hosts(const LaunchPlan& plan);

}  // namespace dslaunch::launch
