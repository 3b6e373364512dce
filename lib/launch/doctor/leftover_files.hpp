// Files and directories that jobs left behind: shared memory that no process has mapped or open, pid files of programs
// that are gone, private directories of jobs whose agent is gone. Only this user's. Reads; changes nothing. Any thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

// Segments with names as torch (file_system sharing), NCCL, the OpenMP runtimes and dslaunch create them.
std::vector<Finding> leftover_shared_memory(const std::string& dir);
// DeepSpeed's launcher writes PID.deepspeed.
std::vector<Finding> leftover_pid_files(const std::string& dir);
// `is_supervised`: whether a job has a live supervisor. The supervisor ends the job's ranks, also when their agent is
// gone.
std::vector<Finding> leftover_private_dirs(const std::string& dir,
                                           const std::function<bool(const std::string& job_id)>& is_supervised);

// Removes the file or directory of a finding.
Result<> remove_leftover(const Finding& finding);

}  // namespace dslaunch::launch
