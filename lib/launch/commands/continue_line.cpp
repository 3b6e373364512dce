#include "launch/commands/continue_line.hpp"

#include <filesystem>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/run_checkpoints.hpp"
#include "base/shell_words.hpp"
#include "launch/jobs/resume_words.hpp"
#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {
namespace {

// The job's name, unless a newer job has it. Of a copied run directory its path: the name is the original's id.
std::string name_for_commands(const LaunchPlan& plan) {
  if (plan.name.empty()) return plan.job_id;
  const auto original = job_on_record(jobs_root(), plan.name);
  std::error_code missing;
  if (original && !std::filesystem::equivalent(original->record.run_dir, plan.run_dir, missing)) return plan.run_dir;
  for (const auto& job : list_jobs(jobs_root())) {
    if (job.record.name == plan.name) return job.record.job_id == plan.job_id ? plan.name : plan.job_id;
  }
  return plan.job_id;
}

}  // namespace

std::string resume_command(const LaunchPlan& plan, bool on_record, const std::vector<std::string>& more) {
  if (on_record) {
    return fmt::format("{} resume {}{}{}", shell_word(plan.start.program), shell_word(name_for_commands(plan)),
                       more.empty() ? "" : " ", shell_words(more));
  }
  JobRecord record;
  record.kind = plan.kind;
  record.start = plan.start;
  record.run_dir = plan.run_dir;
  StartCommand again = plan.start;
  again.words = resume_words(record, newest_run_checkpoint(plan.run_dir).has_value(), more);
  return command_text(again);
}

std::string continue_line(const LaunchPlan& plan, const UnfinishedRun& run) {
  if (!newest_run_checkpoint(plan.run_dir)) {
    if (!run.was_stopped) return {};
    return fmt::format("nothing was saved: no complete checkpoint in {}; to start again: {}", plan.run_dir,
                       command_text(from_scratch(plan.start)));
  }
  if (is_refusal(run.exit_code) && !run.has_step) return {};
  return "to continue: " + resume_command(plan, run.on_record, {});
}

}  // namespace dslaunch::launch
