// `dslaunch resume`: the command line of a recorded run again, in its directory, from the newest checkpoint.
#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/run_checkpoints.hpp"
#include "base/shell_words.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "launch/jobs/resume_words.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

struct ResumeWords {
  std::string job;                // empty: the newest run
  std::vector<std::string> more;  // options of `run` that change it
};

// The options behind JOB are those of `run`, which reads them.
std::optional<ResumeWords> read_resume_words(const Arguments& arguments) {
  ResumeWords out;
  auto word = arguments.words.begin();
  if (word != arguments.words.end() && !word->starts_with("-")) out.job = *word++;
  out.more.assign(word, arguments.words.end());
  const auto is_help = [](const std::string& each) { return each == "--help" || each == "-h"; };
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'resume'");
  if (std::none_of(out.more.begin(), out.more.end(), is_help)) return out;
  CommandLine line("dslaunch resume", "usage: dslaunch resume [JOB] [options of run]",
                   "  dslaunch resume                     the newest run, from its newest checkpoint\n"
                   "  dslaunch resume bert                the newest run of this name (--name)\n"
                   "  dslaunch resume runs/a              the run in this directory\n"
                   "  dslaunch resume last --steps 2000   with options that replace those of its command line\n"
                   "Repeats the command line that started the run, in the directory where it was typed, with the\n"
                   "run's --run_dir and --resume auto.\n");
  std::string ignored;
  line.app().add_option("JOB", ignored, "a job's id, a unique prefix of it, its name, its run directory, or 'last'");
  line.parse(arguments);
  return std::nullopt;
}

bool is_run(const launch::KnownJob& job) {
  return job.record.kind == launch::JobKind::kRun;
}

launch::KnownJob newest(const std::vector<launch::KnownJob>& jobs,
                        const std::function<bool(const launch::KnownJob&)>& wanted, const std::string& what) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), wanted);
  if (found != jobs.end()) return *found;
  throw UserError(ExitCode::kNoInput, fmt::format("{} on record; 'dslaunch jobs --all' lists the jobs", what));
}

launch::KnownJob find_run(const std::string& name) {
  const auto jobs = recorded_jobs();
  if (name.empty()) return newest(jobs, is_run, "there is nothing to resume: no run is");
  std::error_code ignored;
  if (!fs::is_directory(name, ignored)) return launch::find_job(jobs, name);
  const auto is_there = [&](const launch::KnownJob& job) {
    std::error_code missing;
    return is_run(job) && fs::equivalent(job.record.run_dir, name, missing);
  };
  return newest(jobs, is_there, fmt::format("no run in {} is", name));
}

void refuse_living(const launch::KnownJob& job) {
  const std::string& id = job.record.job_id;
  if (job.condition == launch::Condition::kLiving) {
    throw UserError(
        ExitCode::kCannotCreate,
        fmt::format("job {} still runs: 'dslaunch attach {}' shows it, 'dslaunch stop {}' ends it", id, id, id));
  }
  if (job.condition == launch::Condition::kElsewhere) {
    throw UserError(ExitCode::kCannotCreate, fmt::format("job {} may still run: it was started on {}, and its end is "
                                                         "not on record",
                                                         id, job.record.supervisor.host));
  }
}

}  // namespace

int resume_command(const Arguments& arguments) {
  const auto wanted = read_resume_words(arguments);
  if (!wanted) return 0;
  const launch::KnownJob job = find_run(wanted->job);
  const launch::JobRecord& record = job.record;
  refuse_living(job);
  const auto words = launch::resume_words(record, has_run_checkpoints(record.run_dir), wanted->more);
  std::error_code error;
  fs::current_path(record.start.directory, error);
  if (error) {
    throw UserError(ExitCode::kNoInput, fmt::format("cannot go to {}, where job {} was started: {}",
                                                    record.start.directory, record.job_id, error.message()));
  }
  log::info("job {} again, in {}: {} {}", record.job_id, record.start.directory, shell_word(arguments.invoked_as),
            shell_words(words));
  Arguments again = split_arguments(words, arguments.invoked_as);
  again.later_wins = true;
  return run_command(again);
}

}  // namespace dslaunch::launcher
