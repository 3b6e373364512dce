// Jobs as `dslaunch jobs` shows them. Pure; `now` in seconds since 1970.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {

// The jobs shown by default: jobs that have not ended, and those of the last day.
std::vector<KnownJob> recent_jobs(const std::vector<KnownJob>& jobs, int64_t now);

// "running", "ended 0", "lost", "running on node7": the last is for a job of another machine, with its last recorded
// state.
std::string state_word(const KnownJob& job);

// Job, state, ranks, hosts, age, command; a header, then one line per job.
std::string jobs_table(const std::vector<KnownJob>& jobs, int64_t now);
// {"jobs": [...]}: the records, each with its "condition", "folder" and "console"; and with its "ranks" if `statuses`
// has the supervisor's answer at the same index.
std::string jobs_json(const std::vector<KnownJob>& jobs, const std::vector<std::string>& statuses = {});

// All details of one job. `status`: the supervisor's answer; empty: it did not answer, or there is none.
std::string job_details(const KnownJob& job, const std::string& status, int64_t now);

}  // namespace dslaunch::launch
