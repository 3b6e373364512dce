// The hosts of a job, and the ways to those that came by themselves. One thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/dial_in.hpp"
#include "launch/hosts.hpp"
#include "launch/launch_options.hpp"
#include "launch/supervisor.hpp"

namespace dslaunch::launch {

struct JobField {
  std::optional<NodePlace> place;
  ResolvedHosts hosts;
  Gathered gathered;

  // The nodes of --no_ssh: all of them, for each attempt anew. TimeoutError when --join_timeout or `time_limit` passes.
  void gather(const LaunchOptions& options, Deadline time_limit);
  void leave_out(const std::vector<std::string>& lost);
  // For one attempt: takes the ways that were gathered.
  SupervisorOptions supervisor_options(const LaunchOptions& options);
};

}  // namespace dslaunch::launch
