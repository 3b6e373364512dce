// Jobs as `dslaunch jobs` shows them. Pure; `now` in seconds since 1970.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {

// The jobs shown by default: jobs that have not ended, and those of the last day.
std::vector<KnownJob> recent_jobs(const std::vector<KnownJob>& jobs, int64_t now);

// "running", "ended 0", "lost", "running on node7": the last is for a job of another machine, with its last recorded
// state.
std::string state_word(const KnownJob& job);

// The last step of a run, from its metrics.
struct RunProgress {
  std::optional<int64_t> step;
  std::optional<double> loss;  // empty too if it is not finite
};
// `metrics_line`: the last line of its metrics.jsonl, or nothing.
RunProgress progress_in(const std::string& metrics_line);

struct TableShape {
  size_t width = 0;       // columns of the terminal; 0: lines are as long as they are
  size_t max_ended = 10;  // of the jobs that have ended, the newest; the others are counted
  static constexpr size_t kAll = SIZE_MAX;
};

// The jobs that the table shows, in order.
std::vector<KnownJob> jobs_in_table(const std::vector<KnownJob>& jobs, const TableShape& shape);
// Name, state, step, loss, age and hosts of these jobs; `num_left_out` more are counted in the last line. The name is
// what the commands on jobs take: --name of the newest job of that name, else the id. `progress`: by index.
std::string jobs_table(const std::vector<KnownJob>& jobs, const std::vector<RunProgress>& progress, size_t num_left_out,
                       int64_t now, const TableShape& shape);
// {"jobs": [...]}: the records, each with its "condition", "folder" and "console"; and with its "ranks" if `statuses`
// has the supervisor's answer at the same index.
std::string jobs_json(const std::vector<KnownJob>& jobs, const std::vector<std::string>& statuses = {});

// All details of one job. `status`: the supervisor's answer; empty: it did not answer, or there is none.
std::string job_details(const KnownJob& job, const std::string& status, int64_t now);

}  // namespace dslaunch::launch
