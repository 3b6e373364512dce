// A readable table of failures: one row per host, hosts with the same error in one row. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "spawn/agent_link.hpp"

namespace dslaunch::spawn {

// Lines with a header, columns aligned, in the order of the hosts. Errors are the same if their phase is the same and
// their texts differ only in the host's name and in addresses; the first host's text stands for all. Empty for no
// failures.
std::string failure_table(const std::vector<std::pair<std::string, LinkFailure>>& failures);

}  // namespace dslaunch::spawn
