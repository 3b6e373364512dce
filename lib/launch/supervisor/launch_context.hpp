// The hosts of a job, and the ways to those that came by themselves. One thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/launch_options.hpp"
#include "launch/plan/hosts.hpp"
#include "launch/supervisor/node_join.hpp"
#include "launch/supervisor/supervisor.hpp"

namespace dslaunch::launch {

struct LaunchContext {
  const LaunchOptions& options;
  std::optional<NodePlace> place;  // where this process stands among nodes that come by themselves
  ResolvedHosts hosts;
  Gathered gathered;

  // Somebody else starts the other nodes' part of the job.
  bool nodes_come_by_themselves() const { return place && place->num_nodes > 1; }
  // The nodes of --no_ssh: all of them, for each attempt anew. TimeoutError when --join_timeout or `time_limit` passes.
  void gather(Deadline time_limit);
  void leave_out(const std::vector<std::string>& lost);
  // For one attempt: takes the ways that were gathered.
  SupervisorOptions supervisor_options();
};

}  // namespace dslaunch::launch
