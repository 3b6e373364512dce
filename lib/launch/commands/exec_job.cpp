// `dslaunch exec`.
#include <cstdlib>

#include "launch/commands/launch_commands.hpp"
#include "launch/commands/launch_job.hpp"
#include "launch/plan/plan_job.hpp"
#include "launch/plan/run_dir.hpp"
#include "launch/plan/working_dir.hpp"

namespace dslaunch::launch {
namespace {

LaunchPlan plan_exec(const ExecOptions& options, const ResolvedHosts& hosts, int restart) {
  // Programs pick their device by LOCAL_RANK, as under torchrun.
  LaunchPlan plan = plan_job(options.launch, hosts, DeviceRule::kAllOfNode);
  plan.kind = JobKind::kExec;
  plan.argv = options.command;
  plan.add_local_rank = options.add_local_rank;
  plan.restart_count = restart;
  plan.run_dir = absolute_path(options.launch.run_dir);
  // When writing to a pipe, Python would hold its lines back until a buffer is full.
  if (plan.env.try_emplace("PYTHONUNBUFFERED", "1").second) {
    plan.set_env["PYTHONUNBUFFERED"] = plan.exported_env["PYTHONUNBUFFERED"] = "1";
  }
  return plan;
}

ExecJob job_of(const LaunchPlan& plan) {
  const char* slurm_job = std::getenv("SLURM_JOB_ID");
  return {plan.job_id, slurm_job == nullptr ? "" : slurm_job};
}

class ExecPlanner final : public JobPlanner {
 public:
  explicit ExecPlanner(const ExecOptions& options) : options_(options) {}
  ~ExecPlanner() override { let_go(); }
  DeviceUser device_user() const override { return DeviceUser::kAnyProgram; }
  JobCommand command() const override { return job_command(options_); }
  LaunchPlan plan(const ResolvedHosts& hosts, int restart) override {
    LaunchPlan plan = plan_exec(options_, hosts, restart);
    if (restart > 0 || plan.run_dir.empty()) return plan;
    appends_ = plan.append_logs = check_exec_dir(plan.run_dir, job_of(plan), options_.overwrite);
    return plan;
  }
  void prepare(const LaunchPlan& plan) override {
    if (plan.restart_count > 0 || plan.run_dir.empty()) return;
    lock_ = prepare_exec_dir(plan.run_dir, job_of(plan), options_.overwrite);
    recorded_in_ = plan.run_dir;
  }
  void attempt_ended(const JobReport& report) override {
    for (const auto& rank : report.records) began_ = began_ || rank.pid > 0;
  }
  void leave() override { let_go(); }

 private:
  // A job that never began may be started again with the same command.
  void let_go() {
    if (!recorded_in_.empty() && !began_ && !appends_) remove_exec_record(recorded_in_);
    recorded_in_.clear();
    DirectoryLock gone = std::move(lock_);
  }

  const ExecOptions& options_;
  DirectoryLock lock_;
  std::string recorded_in_;  // the run directory that names this job
  bool appends_ = false, began_ = false;
};

}  // namespace

int exec_job(const ExecOptions& options) {
  set_log_level(options.launch);
  ExecPlanner planner(options);
  return launch_job(options.launch, planner);
}

}  // namespace dslaunch::launch
