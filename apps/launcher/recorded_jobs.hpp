// The jobs of this user, for the commands that take a JOB.
#pragma once
#include <vector>

#include "launch/records/job_dirs.hpp"

namespace dslaunch::launcher {

// Newest first; warns of records that cannot be read. Throws UserError(77) when the directory of all jobs cannot be.
std::vector<launch::KnownJob> recorded_jobs();

}  // namespace dslaunch::launcher
