// Plans a training job: checks its config for its world, prepares its run directory and the worker's command line; for
// a restart, finds where it resumes and how its batch divides on the remaining hosts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/folder_lock.hpp"
#include "launch/plan/launch_options.hpp"
#include "launch/supervisor/job_planner.hpp"

namespace dslaunch::launch {

class TrainPlanner final : public JobPlanner {
 public:
  explicit TrainPlanner(const RunOptions& run) : run_(run) {}

  DeviceUser device_user() const override { return DeviceUser::kOurWorker; }
  JobCommand command() const override { return job_command(run_); }
  LaunchPlan plan(const ResolvedHosts& hosts, int restart) override;
  void prepare(const LaunchPlan& plan) override;
  void leave() override { FolderLock gone = std::move(lock_); }

 private:
  void go_on();
  void load_config_for(const LaunchPlan& plan, int restart);
  void split_anew(int world_size);
  void prepare_for_other_machines(LaunchPlan& plan) const;

  struct FirstBatch {
    int64_t global = 0, micro = 0;
    int world_size = 0;
  };
  RunOptions run_;
  std::optional<std::string> begin_from_;  // for a restart of a job that did not begin with auto: its original --resume
  FirstBatch batch_;
  std::vector<std::string> notes_;  // for people: what in the config is worth a line
  FolderLock lock_;
};

}  // namespace dslaunch::launch
