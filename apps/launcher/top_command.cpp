// `top`: what each rank of a running job is doing, now.
#include <unistd.h>

#include <optional>
#include <string>

#include "base/color.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "launch/jobs/job_commands.hpp"
#include "launch/top/watch_job.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

struct TopWords {
  std::string job;  // empty: the newest running job
  launch::TopOptions top;
};

std::optional<TopWords> read_top_options(const Arguments& arguments) {
  TopWords words;
  CommandLine line("dslaunch top", "usage: dslaunch top [options] [JOB]",
                   "  dslaunch top             the ranks of the newest running job, until q or Ctrl-C\n"
                   "  dslaunch top --once bert one table; also where the output is a file or a pipe\n"
                   "Of each rank its host, step, time of a step, the ranks that it waits for, and what it uses of its\n"
                   "GPU and host. JOB is a name (--name), an id or a unique prefix of one, a run directory, or\n"
                   "'last'.\n");
  line.app().add_option("JOB", words.job, "the job; default: the newest running job");
  line.flag("--once", words.top.once, "one table, then end");
  line.flag("--json", words.top.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'top'");
  return words;
}

}  // namespace

int top_command(const Arguments& arguments) {
  auto words = read_top_options(arguments);
  if (!words) return 0;
  words->top.colors = uses_color(ColorChoice::kAuto, STDOUT_FILENO);
  const auto jobs = recorded_jobs();
  const launch::KnownJob job =
      words->job.empty() ? launch::newest_running_job(jobs) : launch::find_job(jobs, words->job);
  return launch::watch_job(job, words->top);
}

}  // namespace dslaunch::launcher
