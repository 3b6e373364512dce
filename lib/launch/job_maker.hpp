// What differs between the kinds of jobs: how one is planned and made ready.
#pragma once
#include <functional>

#include "launch/hosts.hpp"
#include "launch/launch_plan.hpp"

namespace dslaunch::launch {

struct JobMaker {
  bool need_cuda_build = false;  // see resolve_hosts
  // The plan on these hosts. `restart`: 0 for the first attempt. Throws UserError when the job is impossible there.
  std::function<LaunchPlan(const ResolvedHosts& hosts, int restart)> plan;
  // Right before an attempt starts: folders, words for the user.
  std::function<void(const LaunchPlan& plan, int restart)> prepare = [](const LaunchPlan&, int) {};
  // Where the process ends at once: lets go of what prepare took.
  std::function<void()> leave = [] {};
};

}  // namespace dslaunch::launch
