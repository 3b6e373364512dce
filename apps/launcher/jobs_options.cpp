#include "jobs_options.hpp"

#include "base/format.hpp"
#include "command_line.hpp"
#include "launch/plan/cpu_list.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

constexpr const char* kNames =
    "JOB is a name (--name; of several jobs the newest) or an id as 'dslaunch jobs' shows it, a unique prefix of an\n"
    "id, a run directory, or 'last'.\n";

void refuse_program_words(const Arguments& arguments) {
  if (arguments.has_separator)
    usage_error(fmt::format("'--' belongs to 'dslaunch exec', not to '{}'", arguments.command));
}

}  // namespace

std::optional<JobsOptions> read_jobs_options(const Arguments& arguments) {
  JobsOptions options;
  CommandLine line(
      "dslaunch jobs", "usage: dslaunch jobs [options] [JOB...]",
      std::string("  dslaunch jobs                 running jobs, and the last ten that ended within a day\n"
                  "  dslaunch jobs --all --json    every job on record\n"
                  "  dslaunch jobs last            details of the newest job and its ranks\n") +
          kNames);
  line.app().add_option("JOB", options.jobs, "only these jobs, in detail");
  line.flag("--all", options.all, "also jobs that ended long ago");
  line.flag("--json", options.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (options.all && !options.jobs.empty()) usage_error("--all applies to the list of jobs, not to single jobs");
  return options;
}

std::optional<LogsArguments> read_logs_options(const Arguments& arguments) {
  LogsArguments words;
  CommandLine line("dslaunch logs", "usage: dslaunch logs [options] JOB",
                   std::string("  dslaunch logs last              the job's console output\n"
                               "  dslaunch logs -f last --rank 3  one rank's output, until the job has ended\n") +
                       kNames);
  line.app().add_option("JOB", words.job, "the job whose output is shown");
  line.flag("-f,--follow", words.logs.follow, "follow until the job has ended");
  line.value("--rank", words.logs.rank, "the whole log of this rank", "R");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (words.job.empty()) usage_error("which job? dslaunch logs JOB; 'last' is the newest job");
  if (words.logs.rank && *words.logs.rank < 0) usage_error(fmt::format("--rank {}: 0 or more", *words.logs.rank));
  return words;
}

std::optional<std::string> read_attach_options(const Arguments& arguments) {
  std::string job;
  CommandLine line("dslaunch attach", "usage: dslaunch attach JOB",
                   std::string("  dslaunch attach last     its output so far, then live; Ctrl-C detaches\n"
                               "The exit code is the job's, once it has ended.\n") +
                       kNames);
  line.app().add_option("JOB", job, "the job to attach to");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (job.empty()) usage_error("which job? dslaunch attach JOB; 'last' is the newest job");
  return job;
}

std::optional<StacksArguments> read_stacks_options(const Arguments& arguments) {
  StacksArguments words;
  std::optional<std::string> ranks;
  CommandLine line(
      "dslaunch stacks", "usage: dslaunch stacks [options] [JOB]",
      std::string("  dslaunch stacks                    where each rank of the newest running job is\n"
                  "  dslaunch stacks last --rank 0,4-7  these ranks only\n"
                  "From py-spy (Python) or gdb where they are installed on the rank's host and allowed to inspect\n"
                  "processes, which they stop meanwhile; else the kernel's view of each thread.\n") +
          kNames);
  line.app().add_option("JOB", words.job, "the job; default: the newest running job");
  line.value("--rank", ranks, "these ranks only, as 0,4-7", "R");
  line.flag("--json", words.stacks.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (!ranks) return words;
  auto list = launch::read_cpu_list(*ranks);
  if (!list.ok() || list->empty()) {
    usage_error(fmt::format("--rank {}: expected numbers of ranks, ascending, as 3 or 0,4-7", *ranks));
  }
  words.stacks.ranks = *std::move(list);
  return words;
}

std::optional<StopArguments> read_stop_options(const Arguments& arguments) {
  StopArguments words;
  CommandLine line("dslaunch stop", "usage: dslaunch stop [options] JOB...",
                   std::string("  dslaunch stop last             SIGTERM to the ranks, SIGKILL after the job's grace\n"
                               "  dslaunch stop --grace 60 last  more time to save\n"
                               "  dslaunch stop --now last       SIGKILL at once\n") +
                       kNames);
  line.app().add_option("JOB", words.jobs, "the jobs to stop, all at the same time");
  line.flag("--now", words.stop.now, "without a grace period");
  line.duration("--grace", words.stop.grace, "time between SIGTERM and SIGKILL, instead of the job's own; 0: as --now");
  line.flag("--json", words.stop.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (words.jobs.empty()) usage_error("which job? dslaunch stop JOB...; 'last' is the newest job");
  if (words.stop.now && words.stop.grace) usage_error("--now and --grace exclude each other");
  return words;
}

}  // namespace dslaunch::launcher
