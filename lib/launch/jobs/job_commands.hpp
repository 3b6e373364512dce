// `logs`, `attach`, `stacks`, `stop` and `jobs` on jobs that are known: the whole commands but for their options. Each
// returns the exit code of dslaunch. They block; Ctrl-C is theirs where they say so.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "launch/jobs/job_folders.hpp"

namespace dslaunch::launch {

struct LogsOptions {
  bool follow = false;      // until the job has ended
  std::optional<int> rank;  // its log; else what the terminal showed
  uint64_t from = 0;        // what is before this place in the file is not shown
};
// The bytes of the log on standard output. Throws UserError: 64 for a rank that the job does not have, 66 for a log
// that is not there; Error(69) when a job that is followed goes away without an end.
int show_logs(const KnownJob& job, const LogsOptions& options);

// What of the job's console and logs is known to be lost, on standard error.
void tell_lost_output(const KnownJob& job);

// What there is to say of a job whose supervisor is gone and wrote down no end of it (69).
Error without_an_end(const KnownJob& job);

// The console from its beginning, then live, until the job has ended (its exit code) or Ctrl-C detaches (0). Throws
// Error(69) for a job of another machine, or when its supervisor goes away without an end.
int attach_job(const KnownJob& job);

struct StopOptions {
  bool now = false;  // SIGKILL at once
  std::optional<std::chrono::milliseconds> grace;
  bool json = false;
};
// All at once; returns when all have ended, and says how. Throws Error(69) for a job of another machine, before any is
// stopped. What a dead supervisor left behind here is ended too. 69 where a process of a job does not end, even by
// SIGKILL.
int stop_jobs(const std::vector<KnownJob>& jobs, const StopOptions& options);

struct StacksOptions {
  std::vector<int> ranks;  // ascending; none: all
  bool json = false;
};
// The stacks of the ranks' threads on standard output, equal ones once. 69 where a rank that runs gives none. Throws
// UserError(64) for a rank that the job does not have; Error(69) for a job that has ended, of another machine, or whose
// supervisor does not answer.
int show_stacks(const KnownJob& job, const StacksOptions& options);
// The newest of those that run. Throws UserError(66) where none does.
const KnownJob& job_to_look_into(const std::vector<KnownJob>& jobs);

// What the job's supervisor says of it now, as JSON; empty when it does not answer within a moment.
std::string ask_status(const KnownJob& job);

}  // namespace dslaunch::launch
