#include "launch/exec_job.hpp"

#include "launch/carry_out.hpp"
#include "launch/plan/plan_job.hpp"
#include "launch/plan/run_folder.hpp"
#include "launch/plan/working_folder.hpp"

namespace dslaunch::launch {
namespace {

LaunchPlan plan_exec(const ExecOptions& options, const ResolvedHosts& hosts, int restart) {
  // Programs pick their device by LOCAL_RANK, as under torchrun.
  LaunchPlan plan = plan_job(options.launch, hosts, DeviceRule::kAllOfNode);
  plan.kind = JobKind::kExec;
  plan.argv = options.command;
  plan.restart_count = restart;
  plan.run_dir = absolute_path(options.launch.run_dir);
  // Into a pipe Python would keep its lines for itself until a buffer is full.
  if (plan.env.try_emplace("PYTHONUNBUFFERED", "1").second) {
    plan.set_env["PYTHONUNBUFFERED"] = plan.travelling_env["PYTHONUNBUFFERED"] = "1";
  }
  return plan;
}

class ExecMaker final : public JobMaker {
 public:
  explicit ExecMaker(const ExecOptions& options) : options_(options) {}
  DeviceUser device_user() const override { return DeviceUser::kAnyProgram; }
  JobCommand command() const override { return job_command(options_); }
  LaunchPlan plan(const ResolvedHosts& hosts, int restart) override { return plan_exec(options_, hosts, restart); }
  // The logs of a job at work there would be cut by ours.
  void prepare(const LaunchPlan& plan) override {
    if (plan.restart_count > 0 || plan.run_dir.empty()) return;
    lock_ = prepare_run_folder(plan.run_dir, EarlierRun::kKeep, plan.job_id);
  }
  void leave() override { FolderLock gone = std::move(lock_); }

 private:
  const ExecOptions& options_;
  FolderLock lock_;
};

}  // namespace

int exec_job(const ExecOptions& options) {
  set_log_level(options.launch);
  ExecMaker maker(options);
  return carry_out(options.launch, maker);
}

}  // namespace dslaunch::launch
