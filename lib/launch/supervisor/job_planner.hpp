// What differs between kinds of jobs: planning and preparation.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "launch/plan/devices.hpp"
#include "launch/plan/hosts.hpp"
#include "launch/plan/job_command.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_report.hpp"

namespace dslaunch::launch {

class JobPlanner {
 public:
  virtual ~JobPlanner() = default;

  virtual DeviceUser device_user() const = 0;
  // The user's command line, as externally started nodes compare it.
  virtual JobCommand command() const = 0;
  // The plan on these hosts. `restart`: 0 for the first attempt. Throws UserError when the job is impossible there.
  virtual LaunchPlan plan(const ResolvedHosts& hosts, int restart) = 0;
  // Right before an attempt starts: directories, messages for the user.
  virtual void prepare(const LaunchPlan& /*plan*/) {}
  // After an attempt, however it ended.
  virtual void attempt_ended(const JobReport& /*report*/) {}
  // For the user, when the job has ended: the command that continues it. Empty: there is nothing to continue.
  // `on_record`: 'dslaunch resume' will find the job. `last_step`: of its metrics, if they can be read.
  virtual std::string what_next(const LaunchPlan& /*plan*/, const JobReport& /*report*/, bool /*on_record*/,
                                std::optional<int64_t> /*last_step*/) const {
    return {};
  }
  // When no rank is left: whether the end of the job will remove the run directory, and move its logs to the job's.
  virtual bool moves_logs() const { return false; }
  // When the process ends at once: releases what prepare acquired.
  virtual void leave() {}
};

}  // namespace dslaunch::launch
