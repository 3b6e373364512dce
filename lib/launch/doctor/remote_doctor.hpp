// Doctor on other hosts: the dslaunch there, through SSH, on all of them at once.
#pragma once
#include <string>
#include <vector>

#include "launch/doctor/doctor.hpp"
#include "launch/launch_options.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// The hosts that the options name, and how to ask those that are not this machine. Throws UserError as resolve_hosts.
class HostRounds {
 public:
  explicit HostRounds(LaunchOptions options);

  std::vector<std::string> names() const;  // empty: only this machine, and nobody named it
  bool is_here(const std::string& host) const;
  // See RemoteDoctor. A host that cannot be asked has an error.
  std::vector<RemoteAnswer> ask(const std::vector<RemoteQuestion>& questions, std::chrono::milliseconds waits) const;

 private:
  std::vector<PlannedNode> nodes_;
  ReachOptions reach_;
};

}  // namespace dslaunch::launch
