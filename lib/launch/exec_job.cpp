#include "launch/exec_job.hpp"

#include <filesystem>

#include "launch/plan_job.hpp"

namespace dslaunch::launch {

LaunchPlan plan_exec(const ExecOptions& options) {
  // Programs pick their device by LOCAL_RANK, as under torchrun.
  LaunchPlan plan = plan_job(options.launch, false, DeviceRule::kAllOfNode);
  plan.kind = JobKind::kExec;
  plan.argv = options.command;
  if (!options.launch.run_dir.empty()) plan.run_dir = std::filesystem::absolute(options.launch.run_dir).string();
  // Into a pipe Python would keep its lines for itself until a buffer is full.
  if (plan.env.try_emplace("PYTHONUNBUFFERED", "1").second) plan.set_env["PYTHONUNBUFFERED"] = "1";
  return plan;
}

int exec_job(const ExecOptions& options) {
  LaunchPlan plan = plan_exec(options);
  return options.launch.dry_run ? print_plan(plan, options.launch) : launch(plan, options.launch);
}

}  // namespace dslaunch::launch
