// The hosts of a job, and the connections to externally started nodes. One thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/plan/hosts.hpp"
#include "launch/plan/launch_options.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/node_join.hpp"

namespace dslaunch::launch {

struct LaunchContext {
  const LaunchOptions& options;
  std::optional<NodeMembership> membership;  // of this process among externally started nodes
  ResolvedHosts hosts;
  Gathered gathered;

  // The other nodes' part of the job is started externally.
  bool has_external_nodes() const { return membership && membership->num_nodes > 1; }
  // The nodes of --no_ssh: all, again for each attempt. TimeoutError when --join_timeout or `time_limit` passes.
  void gather(Deadline time_limit);
  void leave_out(const std::vector<std::string>& lost);
  // Standard output is reserved for the JSON document.
  bool writes_document() const { return options.json && !options.detach; }
  // For one attempt: takes over the gathered connections.
  SupervisorOptions supervisor_options();
};

}  // namespace dslaunch::launch
