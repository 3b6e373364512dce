#include "launch/jobs/resumable_runs.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/plan/run_record.hpp"
#include "launch/plan/working_dir.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

bool is_training(const KnownJob& job) {
  return job.record.kind == JobKind::kRun && !only_evaluates(job.record.start);
}

bool is_same(const std::string& a, const std::string& b) {
  std::error_code missing;
  return !a.empty() && !b.empty() && fs::equivalent(a, b, missing);
}

// The run record lacks what its job's record, which only this user reads, may still have.
StartCommand start_of(const RunRecord& run, const std::vector<KnownJob>& jobs) {
  for (const auto& job : jobs) {
    if (job.record.job_id != run.job_id) continue;
    if (without_values_of_env(job.record.start.words) == run.start.words) return job.record.start;
  }
  return run.start;
}

}  // namespace

std::optional<KnownJob> run_in_directory(const std::string& dir, const std::vector<KnownJob>& jobs) {
  const auto newest = std::find_if(jobs.begin(), jobs.end(), [&](const KnownJob& job) {
    return is_training(job) && is_same(job.record.run_dir, dir);
  });
  const auto run = read_run_record(dir);
  const bool has_start = run && !run->start.words.empty();
  if (newest == jobs.end() && !has_start) return std::nullopt;
  KnownJob found;
  found.condition = Condition::kEnded;
  if (newest != jobs.end()) found = *newest;
  found.record.kind = JobKind::kRun;
  found.record.run_dir = absolute_path(dir);
  if (!has_start) return found;
  found.record.job_id = run->job_id;
  found.record.name = run->name;
  found.record.start = start_of(*run, jobs);
  found.record.started = run->started;  // a start that failed does not make the run a newer one
  return found;
}

KnownJob find_run(const std::string& name, const std::vector<KnownJob>& jobs) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) {
    if (auto run = run_in_directory(name, jobs)) return *std::move(run);
    throw UserError(ExitCode::kNoInput,
                    fmt::format("no run in {}: it has no {} with a command line, and no job on record ran there; give "
                                "the command line again with --run_dir {} --resume auto",
                                name, kRunRecord, name));
  }
  // An evaluation of a run may have its name, and is not what continues.
  const auto is_named = [&](const KnownJob& job) { return is_training(job) && job.record.name == name; };
  const auto named = std::find_if(jobs.begin(), jobs.end(), is_named);
  const KnownJob job = named != jobs.end() ? *named : find_job(jobs, name);
  if (!is_training(job)) return job;
  return run_in_directory(job.record.run_dir, jobs).value_or(job);
}

std::vector<KnownJob> runs_started_in(const std::string& directory, const std::vector<KnownJob>& jobs) {
  std::vector<std::string> dirs;
  for (const auto& job : jobs) {
    if (is_training(job) && is_same(job.record.start.directory, directory)) dirs.push_back(job.record.run_dir);
  }
  std::error_code error;
  for (fs::directory_iterator at(fs::path(directory) / "runs", error), end; !error && at != end; at.increment(error)) {
    const auto run = read_run_record(at->path().string());
    if (run && is_same(run->start.directory, directory)) dirs.push_back(at->path().string());
  }
  std::vector<KnownJob> runs;
  for (const auto& dir : dirs) {
    const auto is_known = [&](const KnownJob& run) { return is_same(run.record.run_dir, dir); };
    if (std::any_of(runs.begin(), runs.end(), is_known)) continue;
    std::error_code missing;
    auto run = fs::is_directory(dir, missing) ? run_in_directory(dir, jobs) : std::nullopt;
    if (run) runs.push_back(*std::move(run));
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const KnownJob& a, const KnownJob& b) { return a.record.started > b.record.started; });
  return runs;
}

}  // namespace dslaunch::launch
