// Jobs as `dslaunch jobs` shows them. Pure; `now` in seconds since 1970.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launch/jobs/job_folders.hpp"

namespace dslaunch::launch {

// What a person may want to see unasked: jobs that are not over, and those of the last day.
std::vector<KnownJob> recent_jobs(const std::vector<KnownJob>& jobs, int64_t now);

// "running", "ended 0", "lost", "running on node7": the last for a job of another machine, as it was last written down.
std::string state_word(const KnownJob& job);

// Job, state, ranks, hosts, age, command; one line a job below a heading.
std::string jobs_table(const std::vector<KnownJob>& jobs, int64_t now);
// {"jobs": [...]}: the records, each with its "condition", "folder" and "console"; and its "ranks" where `statuses` has
// what the supervisor of the job at that place answered.
std::string jobs_json(const std::vector<KnownJob>& jobs, const std::vector<std::string>& statuses = {});

// Everything about one job. `status`: what its supervisor answered; empty: it did not, or there is none.
std::string job_details(const KnownJob& job, const std::string& status, int64_t now);

}  // namespace dslaunch::launch
