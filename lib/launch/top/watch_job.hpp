// `dslaunch top` on a running job: the complete command except for option parsing and finding the job.
#pragma once
#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {

struct TopOptions {
  bool once = false;  // one table on standard output, also on a terminal
  bool json = false;  // the supervisor's document instead, once
  bool colors = true;
};

// On a terminal, a table that follows the job until q, Ctrl-C or the job's end; else one table. Returns 0. Throws
// Error(69) for a job that has ended, that another machine supervises, or whose supervisor does not answer.
int watch_job(const KnownJob& job, const TopOptions& options);

}  // namespace dslaunch::launch
