#include "ports/process_trees.hpp"

#include <algorithm>

namespace dslaunch::ports {
namespace {

using Stats = std::map<pid_t, ProcessStat>;

Stats read_all() {
  Stats stats;
  for (pid_t pid : all_processes()) {
    if (auto stat = read_process_stat(pid); stat && stat->alive()) stats.emplace(pid, std::move(*stat));
  }
  return stats;
}

// 0: below none of the roots. The processes are not all read at one moment, so a reused pid could form a cycle.
pid_t root_of(pid_t pid, const Stats& stats, const std::vector<pid_t>& roots) {
  const auto is_root = [&](pid_t each) { return std::find(roots.begin(), roots.end(), each) != roots.end(); };
  for (size_t steps = 0; steps <= stats.size(); ++steps) {
    if (is_root(pid)) return pid;
    const auto found = stats.find(pid);
    if (found == stats.end()) return 0;
    if (is_root(found->second.session)) return found->second.session;
    pid = found->second.parent;
  }
  return 0;
}

}  // namespace

std::map<pid_t, std::vector<TreeProcess>> process_trees(const std::vector<pid_t>& roots) {
  const Stats stats = read_all();
  std::map<pid_t, std::vector<TreeProcess>> trees;
  for (const auto& [pid, stat] : stats) {
    if (const pid_t root = root_of(pid, stats, roots); root > 0) trees[root].push_back({pid, stat});
  }
  return trees;
}

}  // namespace dslaunch::ports
