// Doctor on other hosts: runs `dslaunch doctor` on all of them at the same time, through SSH.
#pragma once
#include <string>
#include <vector>

#include "launch/doctor/doctor.hpp"
#include "launch/plan/launch_options.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// The hosts that the options name, and the means to query those that are not this machine. Throws UserError as
// resolve_hosts does.
class HostRounds {
 public:
  explicit HostRounds(LaunchOptions options);

  std::vector<std::string> names() const;  // empty: only this machine, and no option named it
  bool is_here(const std::string& host) const;
  // See RemoteDoctor. For a host that cannot be queried, the answer has an error.
  std::vector<RemoteAnswer> ask(const std::vector<RemoteQuestion>& questions, std::chrono::milliseconds waits) const;

 private:
  std::vector<PlannedNode> nodes_;
  ReachOptions reach_;
};

}  // namespace dslaunch::launch
