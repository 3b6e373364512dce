// Which run `dslaunch resume` continues: found by a job, by its directory, or as the newest of a working directory. Any
// thread; several launchers may start runs meanwhile.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/records/job_dirs.hpp"

namespace dslaunch::launch {

// The run in this directory as a job: the command of the last start that got as far as a step, the name and the
// directory of the run, the condition of its newest job. From the directory's own record (run.json), and from the jobs
// for the values of --env that it lacks; a directory of an older version has its newest job's command. Empty: there is
// no such run.
std::optional<KnownJob> run_in_directory(const std::string& dir, const std::vector<KnownJob>& jobs);

// The run that `name` (as find_job takes it; or a run directory) stands for. A job without a run directory is returned
// as it is. Throws UserError as find_job; 66 for a directory without a run.
KnownJob find_run(const std::string& name, const std::vector<KnownJob>& jobs);

// The runs that were started in `directory`, the newest first: those of the jobs, and of directories in
// `directory`/runs whose jobs are no longer on record.
std::vector<KnownJob> runs_started_in(const std::string& directory, const std::vector<KnownJob>& jobs);

}  // namespace dslaunch::launch
