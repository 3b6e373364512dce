#include "launch/commands/run_job.hpp"

#include "base/error.hpp"
#include "launch/commands/launch_job.hpp"
#include "launch/commands/train_planner.hpp"
#include "launch/plan/model_file.hpp"

namespace dslaunch::launch {

static void check_resume(const RunOptions& run) {
  if (run.resume == "auto" && run.launch.run_dir.empty()) {
    throw UserError(ExitCode::kUsage, "--resume auto needs --run_dir: which run should be resumed?");
  }
}

int run_job(const RunOptions& run) {
  set_log_level(run.launch);
  check_model_file(run.model);
  check_resume(run);
  TrainPlanner planner(run);
  return launch_job(run.launch, planner);
}

}  // namespace dslaunch::launch
