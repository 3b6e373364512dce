// `jobs`, `logs`, `attach`, `stacks`, `stop`: this user's jobs, found by id.
#include <cstdio>
#include <ctime>

#include "base/log.hpp"
#include "commands.hpp"
#include "jobs_options.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/jobs/job_table.hpp"
#include "launch/records/dead_sockets.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

void show_details(const std::vector<launch::KnownJob>& jobs, bool json) {
  std::vector<std::string> statuses;
  statuses.reserve(jobs.size());
  for (const auto& job : jobs) statuses.push_back(launch::query_status(job));
  std::string text;
  for (size_t i = 0; !json && i < jobs.size(); ++i) {
    text += (i > 0 ? "\n" : "") + launch::job_details(jobs[i], statuses[i], std::time(nullptr));
  }
  std::fputs((json ? launch::jobs_json(jobs, statuses) : text).c_str(), stdout);
}

}  // namespace

int jobs_command(const Arguments& arguments) {
  auto options = read_jobs_options(arguments);
  if (!options) return 0;
  launch::remove_dead_sockets();
  auto jobs = recorded_jobs();
  if (options->jobs.empty()) {
    int64_t now = std::time(nullptr);
    auto shown = options->all ? jobs : launch::recent_jobs(jobs, now);
    std::fputs((options->json ? launch::jobs_json(shown) : launch::jobs_table(shown, now)).c_str(), stdout);
    return 0;
  }
  std::vector<launch::KnownJob> found;
  for (const auto& name : options->jobs) found.push_back(launch::find_job(jobs, name));
  show_details(found, options->json);
  return 0;
}

int logs_command(const Arguments& arguments) {
  auto words = read_logs_options(arguments);
  return words ? launch::show_logs(launch::find_job(recorded_jobs(), words->job), words->logs) : 0;
}

int attach_command(const Arguments& arguments) {
  auto job = read_attach_options(arguments);
  return job ? launch::attach_job(launch::find_job(recorded_jobs(), *job)) : 0;
}

int stacks_command(const Arguments& arguments) {
  auto words = read_stacks_options(arguments);
  if (!words) return 0;
  const auto jobs = recorded_jobs();
  if (!words->job.empty()) return launch::show_stacks(launch::find_job(jobs, words->job), words->stacks);
  const launch::KnownJob& job = launch::newest_running_job(jobs);
  log::info("job {}", job.record.job_id);
  return launch::show_stacks(job, words->stacks);
}

int stop_command(const Arguments& arguments) {
  auto words = read_stop_options(arguments);
  if (!words) return 0;
  auto jobs = recorded_jobs();
  // All names are looked up before any job is touched.
  std::vector<launch::KnownJob> found;
  for (const auto& name : words->jobs) found.push_back(launch::find_job(jobs, name));
  return launch::stop_jobs(found, words->stop);
}

}  // namespace dslaunch::launcher
