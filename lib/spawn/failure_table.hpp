// What failed where, for a person: one row a host, hosts with the same trouble in one. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "spawn/agent_link.hpp"

namespace dslaunch::spawn {

// Lines with a heading, the columns aligned, in the order of the hosts. The same trouble: the same phase, and a text
// that differs in the host's name and in addresses only; the first host's text stands for all. Empty for no failures.
std::string failure_table(const std::vector<std::pair<std::string, LinkFailure>>& failures);

}  // namespace dslaunch::spawn
