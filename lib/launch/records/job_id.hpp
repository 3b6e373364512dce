// The name of a job: its start time, the launcher's pid and eight random digits, for example
// 20260131-174502-4711-c0de1234. Pids alone are not unique: containers that share a home directory may have equal pids.
// Not a secret.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// Returns an id that is not `taken`, for example by a recorded job.
std::string make_job_id(const std::function<bool(const std::string& job_id)>& taken);
// Also accepts ids of earlier versions, which had four random digits.
bool is_job_id(std::string_view text);

}  // namespace dslaunch::launch
