// A table of the hosts that could not be reached or were lost, and why. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

// Hosts that failed for the same reason share a row. Ends with a newline; empty without failures.
std::string tell_failures(const std::vector<std::pair<std::string, spawn::LinkFailure>>& failures);

}  // namespace dslaunch::launch
