#include "launch/jobs/register_job.hpp"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "launch/jobs/detach.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxFinishedJobs = 100;
constexpr std::chrono::seconds kKeptFor = 24h * 30;

[[noreturn]] void refuse_to_detach(const std::string& error) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("--detach needs a directory for the job's output: {}; set XDG_STATE_HOME to a writable "
                              "directory",
                              error));
}

// Nobody could see or stop the job, for example because a disk is full.
[[noreturn]] void refuse_to_detach(LiveJob& live, const JobDir& dir) {
  std::string error = fmt::format("{}", fmt::join(live.take_errors(), "; "));
  std::error_code ignored;
  std::filesystem::remove_all(dir.path, ignored);
  refuse_to_detach(error);
}

JobDir make_dir(const LaunchPlan& plan) {
  try {
    JobDir dir = make_job_dir(jobs_root(), plan.job_id);
    prune_jobs(jobs_root(), kMaxFinishedJobs, kKeptFor, std::time(nullptr));
    return dir;
  } catch (const Error& error) {
    if (plan.detach) refuse_to_detach(error.what());
    log::warning("the job is not on record ('dslaunch jobs' does not show it): {}", error.what());
    return {};
  }
}

std::optional<JobRecord> record_in(const JobDir& dir) {
  const auto text = read_whole_file(dir.record_file());
  return text ? record_from_json(*text) : std::nullopt;
}

std::string started_text(const Started& started, const JobDir& dir) {
  const auto record = record_in(dir);
  const std::string job = record ? record->label() : started.job_id;
  return fmt::format(
      "job {} runs in the background (supervisor: pid {})\n"
      "  dslaunch attach {}    its output, live; Ctrl-C detaches\n"
      "  dslaunch logs -f {}\n"
      "  dslaunch stop {}\n",
      job, started.supervisor, job, job, job);
}

std::string started_json(const Started& started, const JobDir& dir) {
  const auto record = record_in(dir);
  Json json = {
      {"job_id", started.job_id},
      {"state", started.exit_code == 0 ? "running" : "ended"},
      {"exit_code", started.exit_code == 0 ? Json(nullptr) : Json(started.exit_code)},
      {"supervisor_pid", started.supervisor},
      {"folder", dir.path},
      {"console", dir.console_file()},
      {"run_dir", record && !record->run_dir.empty() ? Json(record->run_dir) : Json(nullptr)},
  };
  return dump_json(json, 2) + "\n";
}

// The error messages of a failed start are in the console.
void print_failed_start(const Started& started, const JobDir& dir) {
  std::string console = read_whole_file(dir.console_file()).value_or("");
  std::fwrite(console.data(), 1, console.size(), stderr);
  log::error("job {} did not start: exit code {}", started.job_id, started.exit_code);
}

void print_pid(pid_t pid, const LaunchOptions& options) {
  std::fputs(fmt::format("launcher pid: {}\n", pid).c_str(), options.json ? stderr : stdout);
  std::fflush(stdout);
}

}  // namespace

std::unique_ptr<LiveJob> register_job(LaunchPlan& plan, const LaunchOptions& options, UniqueFd& starter) {
  JobDir dir = make_dir(plan);
  plan.job_dir = dir.path;
  // Decided here, while standard output may still be the terminal. Most lines of a run concern all ranks alike: what is
  // wrong with the model is said once wherever the output goes.
  if (!plan.output.fold) plan.output.fold = plan.kind == JobKind::kRun || ::isatty(STDOUT_FILENO) != 0;
  if (plan.output.save_pid && !plan.detach) {
    print_pid(::getpid(), options);
    if (dir.there()) log::info("the launcher's pid is in {}", dir.pid_file());
  }
  auto live = std::make_unique<LiveJob>(plan, dir);
  if (plan.detach) {
    if (!live->on_record() || live->console() == nullptr) refuse_to_detach(*live, dir);
    leave_terminal(live->console()->fd());
  }
  live->report_start_to(std::move(starter));
  return live;
}

int print_start(const Started& started, const LaunchOptions& options) {
  if (started.job_id.empty()) return started.exit_code;
  JobDir dir{jobs_root() + "/" + started.job_id};
  if (started.exit_code != 0) print_failed_start(started, dir);
  if (started.exit_code == 0 && options.output.save_pid) {
    print_pid(started.supervisor, options);
    log::info("the launcher's pid is in {}", dir.pid_file());
  }
  if (options.json) {
    std::fputs(started_json(started, dir).c_str(), stdout);
  } else if (started.exit_code == 0) {
    print_text(started_text(started, dir));
  }
  return started.exit_code;
}

}  // namespace dslaunch::launch
