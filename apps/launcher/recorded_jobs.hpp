// The jobs of this user, for the commands that take a JOB.
#pragma once
#include <string>
#include <vector>

#include "launch/records/job_dirs.hpp"

namespace dslaunch::launcher {

// Newest first; warns of records that cannot be read. Throws UserError(77) when the directory of all jobs cannot be.
std::vector<launch::KnownJob> recorded_jobs();

// What a user means by `word` where a command takes a run or its files: a path, if there is one of this name or it can
// only be one, else the run directory of a job, as find_job() takes it. Throws UserError: 66 for neither, 65 for a job
// without a run directory.
std::string run_directory(const std::string& word);

}  // namespace dslaunch::launcher
