// `jobs`, `logs`, `attach`, `stacks`, `stop`: this user's jobs, found by id.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "commands.hpp"
#include "jobs_options.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/jobs/job_table.hpp"
#include "launch/records/dead_sockets.hpp"
#include "launch/records/job_dirs.hpp"

namespace dslaunch::launcher {
namespace {

std::vector<launch::KnownJob> all_jobs() {
  std::vector<launch::UnreadableJob> unreadable;
  const std::string root = launch::jobs_root();
  // The directory was created by another user (sudo): "no jobs" would be a wrong answer.
  if (::access(root.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
    throw UserError(
        ExitCode::kPermission,
        fmt::format("cannot read the directory of this user's jobs: {}: {}; 'ls -ld' shows the owners of it and of the "
                    "directories above it, and XDG_STATE_HOME chooses another one",
                    printable(root), describe_errno(EACCES)));
  }
  auto jobs = launch::list_jobs(root, &unreadable);
  for (const auto& job : unreadable) {
    log::warning("cannot read {}: {}; the job is not shown (remove the directory when none of its processes runs)",
                 printable(job.dir.record_file()), job.error);
  }
  return jobs;
}

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
  auto jobs = all_jobs();
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
  return words ? launch::show_logs(launch::find_job(all_jobs(), words->job), words->logs) : 0;
}

int attach_command(const Arguments& arguments) {
  auto job = read_attach_options(arguments);
  return job ? launch::attach_job(launch::find_job(all_jobs(), *job)) : 0;
}

int stacks_command(const Arguments& arguments) {
  auto words = read_stacks_options(arguments);
  if (!words) return 0;
  const auto jobs = all_jobs();
  if (!words->job.empty()) return launch::show_stacks(launch::find_job(jobs, words->job), words->stacks);
  const launch::KnownJob& job = launch::newest_running_job(jobs);
  log::info("job {}", job.record.job_id);
  return launch::show_stacks(job, words->stacks);
}

int stop_command(const Arguments& arguments) {
  auto words = read_stop_options(arguments);
  if (!words) return 0;
  auto jobs = all_jobs();
  // All names are looked up before any job is touched.
  std::vector<launch::KnownJob> found;
  for (const auto& name : words->jobs) found.push_back(launch::find_job(jobs, name));
  return launch::stop_jobs(found, words->stop);
}

}  // namespace dslaunch::launcher
