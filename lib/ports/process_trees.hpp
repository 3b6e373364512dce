// Processes with all that they have started, from one look at /proc. Any thread.
#pragma once
#include <map>
#include <vector>

#include "ports/process_info.hpp"

namespace dslaunch::ports {

struct TreeProcess {
  pid_t pid = -1;
  ProcessStat stat;
};

// For each of `roots` that exists: itself, its descendants, and the processes of the session that it leads, ascending.
// Zombies are left out, and what belongs to a root inside another root's tree is that root's alone.
std::map<pid_t, std::vector<TreeProcess>> process_trees(const std::vector<pid_t>& roots);

}  // namespace dslaunch::ports
