// `logs`, `attach`, `stacks`, `stop` and `jobs` on known jobs: the complete commands except for option parsing. Each
// returns the exit code of dslaunch. They block; they handle Ctrl-C where stated.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {

struct LogsOptions {
  bool follow = false;      // until the job has ended
  std::optional<int> rank;  // show this rank's log; unset: the terminal's output
  uint64_t from = 0;        // bytes before this offset in the file are not shown
};
// Prints the log to standard output. Throws UserError: 64 for a rank that the job does not have, 66 for a log that does
// not exist; Error(69) when a followed job disappears without a recorded end.
int show_logs(const KnownJob& job, const LogsOptions& options);

// Prints to standard error which parts of the job's console and logs are known to be lost.
void warn_lost_output(const KnownJob& job);

// The error (69) for a job whose supervisor is gone and recorded no end.
Error unrecorded_end(const KnownJob& job);
// Throws Error(69) for a job whose supervisor cannot be asked: it is lost, on another machine, or suspended.
void check_supervisor_here(const KnownJob& job);

// Shows the console from its beginning, then live, until the job has ended (returns its exit code) or Ctrl-C detaches
// (returns 0). Throws Error(69) for a job of another machine, or when its supervisor disappears without a recorded end.
int attach_job(const KnownJob& job);

struct StopOptions {
  bool now = false;  // SIGKILL at once
  std::optional<std::chrono::milliseconds> grace;
  bool json = false;
};
// Stops all jobs at the same time; returns when all have ended, and reports how. Throws Error(69) for a job of another
// machine, before any job is stopped. Also ends the processes that a dead supervisor left behind on this machine.
// Returns 69 when a process of a job does not end, even by SIGKILL.
int stop_jobs(const std::vector<KnownJob>& jobs, const StopOptions& options);

struct StacksOptions {
  std::vector<int> ranks;  // ascending; none: all
  bool json = false;
};
// Prints the stacks of the ranks' threads to standard output, merging equal ones. Returns 69 when a running rank gives
// no stacks. Throws UserError(64) for a rank that the job does not have; Error(69) for a job that has ended, that is on
// another machine, or whose supervisor does not answer.
int show_stacks(const KnownJob& job, const StacksOptions& options);
// The newest running job. Throws UserError(66) when none is running.
const KnownJob& newest_running_job(const std::vector<KnownJob>& jobs);

// The current status from the job's supervisor, as JSON; empty when it does not answer within the status timeout.
std::string query_status(const KnownJob& job);

}  // namespace dslaunch::launch
