// Files and folders that jobs left behind: shared memory that nobody has mapped or open any more, pid files of programs
// that are gone, private folders of jobs whose agent is gone. This user's only. Reads; changes nothing. Any thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

// Names that torch (file_system sharing), NCCL, the OpenMP runtimes and we give to segments.
std::vector<Finding> leftover_shared_memory(const std::string& folder);
// DeepSpeed's launcher writes PID.deepspeed.
std::vector<Finding> leftover_pid_files(const std::string& folder);
// `is_supervised`: whether a job has a supervisor that lives. It ends its ranks itself, also when their agent is gone.
std::vector<Finding> leftover_private_folders(const std::string& folder,
                                              const std::function<bool(const std::string& job_id)>& is_supervised);

// Removes the file or folder of a finding; empty: it is gone, else why not.
std::string remove_leftover(const Finding& finding);

}  // namespace dslaunch::launch
