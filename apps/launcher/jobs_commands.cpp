// `jobs`, `logs`, `attach`, `stacks`, `stop`: this user's jobs, found by id.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/log.hpp"
#include "base/printable.hpp"
#include "commands.hpp"
#include "jobs_options.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/jobs/job_table.hpp"
#include "launch/records/dead_sockets.hpp"
#include "launch/supervisor/run_metrics.hpp"
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
  if (json) {
    std::fputs(launch::jobs_json(jobs, statuses).c_str(), stdout);
  } else {
    print_text(text);
  }
}

std::string metrics_line_of(const launch::JobRecord& record, launch::FileThread& reads) {
  if (record.kind != launch::JobKind::kRun || record.run_dir.empty()) return {};
  return launch::only_evaluates(record.start) ? launch::last_metrics_line(reads, record.run_dir)
                                              : launch::last_training_line(reads, record.run_dir);
}

// A job whose files are on a file server that does not answer is shown without its progress, as are those after it.
std::vector<launch::RunProgress> progress_of(const std::vector<launch::KnownJob>& jobs) {
  launch::FileThread reads;
  std::vector<launch::RunProgress> progress;
  for (const auto& job : jobs) {
    progress.push_back(launch::progress_in(reads.idle() ? metrics_line_of(job.record, reads) : std::string()));
  }
  return progress;
}

// 0: standard output is not a terminal.
size_t terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

void show_table(const std::vector<launch::KnownJob>& jobs, bool all) {
  launch::TableShape shape{.width = terminal_width()};
  if (all) shape.max_ended = launch::TableShape::kAll;
  const auto shown = launch::jobs_in_table(jobs, shape);
  print_text(launch::jobs_table(shown, progress_of(shown), jobs.size() - shown.size(), std::time(nullptr), shape));
}

}  // namespace

int jobs_command(const Arguments& arguments) {
  auto options = read_jobs_options(arguments);
  if (!options) return 0;
  launch::remove_dead_sockets();
  auto jobs = recorded_jobs();
  if (options->jobs.empty()) {
    const auto listed = options->all ? jobs : launch::recent_jobs(jobs, std::time(nullptr));
    if (options->json) {
      std::fputs(launch::jobs_json(listed).c_str(), stdout);
    } else {
      show_table(listed, options->all);
    }
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
