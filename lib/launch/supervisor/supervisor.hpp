// The one process that owns a job: the links to the agents, the logs, the exit code. In the foreground it is dslaunch
// itself. A supervisor runs one attempt, in three phases: start-up, running, shutdown. One thread.
#pragma once
#include <chrono>

#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/job_control.hpp"
#include "launch/supervisor/running.hpp"
#include "launch/supervisor/shutdown.hpp"
#include "launch/supervisor/start_up.hpp"

namespace dslaunch::launch {

class Supervisor {
 public:
  Supervisor(LaunchPlan plan, SupervisorOptions options);

  // Until the job has ended and all its processes are gone.
  JobReport run();
  // For terminal lines and documents on standard output.
  JobOutput& output() { return attempt_.output; }
  // The wait before the next attempt: nothing runs, and a request to stop takes effect at once. Not kNone: cut short by
  // one.
  StopReason pause_before_restart(std::chrono::milliseconds length);
  // After run(): the last messages to nodes and readers.
  Shutdown& shutdown() { return shutdown_; }

 private:
  Attempt attempt_;
  JobControl control_;
  StartUp start_up_;
  Running running_;
  Shutdown shutdown_;
};

}  // namespace dslaunch::launch
