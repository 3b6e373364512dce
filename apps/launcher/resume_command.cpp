// `dslaunch resume`: the command line of a recorded run again, in its directory, from the newest checkpoint.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/run_checkpoints.hpp"
#include "base/shell_words.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "launch/jobs/resumable_runs.hpp"
#include "launch/jobs/resume_words.hpp"
#include "launch/plan/run_dir.hpp"
#include "launch/plan/working_dir.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

struct ResumeWords {
  std::string job;                // empty: the newest run of this directory
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
                   "  dslaunch resume                     the newest run that was started in this directory\n"
                   "  dslaunch resume bert                the newest run of this name (--name)\n"
                   "  dslaunch resume runs/a              the run in this directory\n"
                   "  dslaunch resume last --steps 2000   with options that replace those of its command line\n"
                   "Repeats the command line that started the run, in the directory where it was typed, with the\n"
                   "run's --run_dir and --resume auto: it continues from the newest checkpoint.\n");
  std::string ignored;
  line.app().add_option("JOB", ignored, "a job's id, a unique prefix of it, its name, its run directory, or 'last'");
  line.parse(arguments);
  return std::nullopt;
}

constexpr size_t kMaxCandidates = 5;

// "bert in /data/runs/a (step 50)", a line each.
std::string list_of(const std::vector<launch::KnownJob>& runs) {
  std::string out;
  for (size_t i = 0; i < std::min(runs.size(), kMaxCandidates); ++i) {
    const launch::JobRecord& record = runs[i].record;
    const auto step = newest_run_checkpoint(record.run_dir);
    out += fmt::format("\n  dslaunch resume {}    {}, {}, started {}", shell_word(record.label()),
                       printable(record.run_dir), step ? fmt::format("step {}", *step) : "nothing saved",
                       launch::utc_text(record.started));
  }
  if (runs.size() > kMaxCandidates) out += fmt::format("\n  and {} more", runs.size() - kMaxCandidates);
  return out;
}

// Runs of other working directories are named, not taken: the one that is meant may be another one.
launch::KnownJob newest_run_here(const std::vector<launch::KnownJob>& jobs) {
  const std::string here = launch::working_dir();
  const auto runs = launch::runs_started_in(here, jobs);
  if (!runs.empty()) return runs.front();
  std::vector<launch::KnownJob> others;
  for (const auto& job : jobs) {
    const bool is_run = job.record.kind == launch::JobKind::kRun && !launch::only_evaluates(job.record.start);
    const auto is_listed = [&](const auto& other) { return other.record.run_dir == job.record.run_dir; };
    if (!is_run || std::any_of(others.begin(), others.end(), is_listed)) continue;
    if (auto run = launch::run_in_directory(job.record.run_dir, jobs)) others.push_back(*std::move(run));
  }
  const std::string candidates = others.empty() ? "no run is on record" : "other runs:" + list_of(others);
  throw UserError(ExitCode::kNoInput, fmt::format("nothing to resume: no run was started in {}; {}", here, candidates));
}

void refuse_living(const launch::KnownJob& job) {
  const std::string& name = job.record.label();
  if (job.condition == launch::Condition::kLiving) {
    throw UserError(
        ExitCode::kCannotCreate,
        fmt::format("job {} still runs: 'dslaunch attach {}' shows it, 'dslaunch stop {}' ends it", name, name, name));
  }
  if (job.condition == launch::Condition::kElsewhere) {
    throw UserError(ExitCode::kCannotCreate, fmt::format("job {} may still run: it was started on {}, and its end is "
                                                         "not on record",
                                                         name, job.record.supervisor.host));
  }
}

// A start from scratch would replace what the run has recorded.
void refuse_to_start_again(const launch::JobRecord& record) {
  if (!launch::holds_run(record.run_dir) || newest_run_checkpoint(record.run_dir)) return;
  throw UserError(
      ExitCode::kNoInput,
      fmt::format("run {} cannot continue: no complete checkpoint of it is in {}, and a start from scratch "
                  "would replace its metrics; to start again: {}",
                  record.label(), record.run_dir, launch::command_text(launch::from_scratch(record.start))));
}

std::optional<std::string> variable_of_shell(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

int resume_command(const Arguments& arguments) {
  const auto wanted = read_resume_words(arguments);
  if (!wanted) return 0;
  const auto jobs = recorded_jobs();
  const launch::KnownJob job = wanted->job.empty() ? newest_run_here(jobs) : launch::find_run(wanted->job, jobs);
  const launch::JobRecord& record = job.record;
  refuse_living(job);
  const auto step = newest_run_checkpoint(record.run_dir);
  auto words = launch::resume_words(record, step.has_value(), wanted->more);
  refuse_to_start_again(record);
  words = launch::with_values_of_env(words, variable_of_shell);
  std::error_code error;
  fs::current_path(record.start.directory, error);
  if (error) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("cannot go to {}, where run {} was started: {}; where its files are: "
                                "{} {}",
                                record.start.directory, record.label(), error.message(),
                                shell_word(arguments.invoked_as), shell_words(words)));
  }
  log::info("resuming run {} in {} from {}: cd {} && {} {}", record.label(), record.run_dir,
            step ? fmt::format("step {}", *step) : "its beginning (it has saved and recorded nothing)",
            shell_word(record.start.directory), shell_word(arguments.invoked_as), shell_words(words));
  if (std::find(words.begin(), words.end(), "--detach") != words.end()) {
    log::warning(
        "the run continues in the background, as it was started (--detach): 'dslaunch attach {}' shows it; with "
        "--detach=false it continues here",
        record.label());
  }
  Arguments again = split_arguments(words, arguments.invoked_as);
  again.later_wins = true;
  return run_command(again);
}

}  // namespace dslaunch::launcher
