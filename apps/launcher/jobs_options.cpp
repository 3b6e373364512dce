#include "jobs_options.hpp"

#include "base/format.hpp"
#include "command_line.hpp"
#include "launch/plan/cpu_list.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

constexpr const char* kNames =
    "JOB is an id as 'dslaunch jobs' shows it, a beginning of it that is no other job's, or 'last'.\n";

void refuse_program_words(const Arguments& arguments) {
  if (arguments.has_separator)
    usage_error(fmt::format("'--' belongs to 'dslaunch exec', not to '{}'", arguments.command));
}

}  // namespace

std::optional<JobsOptions> read_jobs_options(const Arguments& arguments) {
  JobsOptions options;
  CommandLine line("dslaunch jobs", "usage: dslaunch jobs [options] [JOB...]",
                   std::string("  dslaunch jobs                 what runs, and what ended within a day\n"
                               "  dslaunch jobs --all --json    every job on record\n"
                               "  dslaunch jobs last            everything about the newest one, its ranks too\n") +
                       kNames);
  line.app().add_option("JOB", options.jobs, "these only, in detail");
  line.flag("--all", options.all, "also jobs that ended long ago");
  line.flag("--json", options.json, "one document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (options.all && !options.jobs.empty()) usage_error("--all is for the list of jobs, not for single ones");
  return options;
}

std::optional<LogsWords> read_logs_options(const Arguments& arguments) {
  LogsWords words;
  CommandLine line("dslaunch logs", "usage: dslaunch logs [options] JOB",
                   std::string("  dslaunch logs last              what the terminal showed, or would have\n"
                               "  dslaunch logs -f last --rank 3  one rank's output, until the job has ended\n") +
                       kNames);
  line.app().add_option("JOB", words.job, "whose output");
  line.flag("-f,--follow", words.logs.follow, "go on until the job has ended");
  line.value("--rank", words.logs.rank, "the whole log of this rank", "R");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (words.job.empty()) usage_error("which job? dslaunch logs JOB; 'last' is the newest one");
  if (words.logs.rank && *words.logs.rank < 0) usage_error(fmt::format("--rank {}: 0 or more", *words.logs.rank));
  return words;
}

std::optional<std::string> read_attach_options(const Arguments& arguments) {
  std::string job;
  CommandLine line("dslaunch attach", "usage: dslaunch attach JOB",
                   std::string("  dslaunch attach last     its output so far, then live; Ctrl-C comes away again\n"
                               "The exit code is the job's, once it has ended.\n") +
                       kNames);
  line.app().add_option("JOB", job, "which one");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (job.empty()) usage_error("which job? dslaunch attach JOB; 'last' is the newest one");
  return job;
}

std::optional<StacksWords> read_stacks_options(const Arguments& arguments) {
  StacksWords words;
  std::optional<std::string> ranks;
  CommandLine line(
      "dslaunch stacks", "usage: dslaunch stacks [options] [JOB]",
      std::string("  dslaunch stacks                    where each rank of the newest running job is\n"
                  "  dslaunch stacks last --rank 0,4-7  these ranks only\n"
                  "By py-spy (Python) or gdb where they are installed on the rank's host and may look into\n"
                  "processes, which they stop meanwhile; else what the kernel says of each thread.\n") +
          kNames);
  line.app().add_option("JOB", words.job, "whose ranks; without it the newest job that runs");
  line.value("--rank", ranks, "these ranks only, as 0,4-7", "R");
  line.flag("--json", words.stacks.json, "one document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (!ranks) return words;
  auto reading = launch::read_cpu_list(*ranks);
  if (!reading.error.empty() || reading.cpus.empty()) {
    usage_error(fmt::format("--rank {}: expected numbers of ranks, ascending, as 3 or 0,4-7", *ranks));
  }
  words.stacks.ranks = std::move(reading.cpus);
  return words;
}

std::optional<StopWords> read_stop_options(const Arguments& arguments) {
  StopWords words;
  CommandLine line("dslaunch stop", "usage: dslaunch stop [options] JOB...",
                   std::string("  dslaunch stop last             SIGTERM to the ranks, SIGKILL after the job's grace\n"
                               "  dslaunch stop --grace 60 last  more time to save\n"
                               "  dslaunch stop --now last       SIGKILL at once\n") +
                       kNames);
  line.app().add_option("JOB", words.jobs, "which ones; all are stopped at the same time");
  line.flag("--now", words.stop.now, "without any grace");
  line.duration("--grace", words.stop.grace, "time between SIGTERM and SIGKILL, instead of the job's own; 0: as --now");
  line.flag("--json", words.stop.json, "one document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (words.jobs.empty()) usage_error("which job? dslaunch stop JOB...; 'last' is the newest one");
  if (words.stop.now && words.stop.grace) usage_error("--now and --grace exclude each other");
  return words;
}

}  // namespace dslaunch::launcher
