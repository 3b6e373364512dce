// The line at the end of a run that did not finish: the command that continues it.
#pragma once
#include <string>
#include <vector>

#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// The command that continues the run of the plan, with `more` options. `on_record`: `dslaunch resume` will find the
// job; else it is the whole command line.
std::string resume_command(const LaunchPlan& plan, bool on_record, const std::vector<std::string>& more);

struct UnfinishedRun {
  int exit_code = 0;
  bool was_stopped = false;  // from outside
  bool has_step = false;     // of this start
  bool on_record = false;
};

// For a run directory that holds a run. Empty: the run has saved nothing and was not stopped, or its command is what
// failed.
std::string continue_line(const LaunchPlan& plan, const UnfinishedRun& run);

}  // namespace dslaunch::launch
