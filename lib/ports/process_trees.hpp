// Processes with all of their descendants, from one pass over /proc. Any thread.
#pragma once
#include <map>
#include <vector>

#include "ports/process_info.hpp"

namespace dslaunch::ports {

struct TreeProcess {
  pid_t pid = -1;
  ProcessStat stat;
};

// For each of `roots` that exists: the root, its descendants, and the processes of the session that it leads,
// ascending. Zombies are left out. A root inside another root's tree keeps its processes: the outer root does not list
// them.
std::map<pid_t, std::vector<TreeProcess>> process_trees(const std::vector<pid_t>& roots);

}  // namespace dslaunch::ports
