// The name of a job: its time of start, the launcher's pid and eight random digits, for example
// 20260131-174502-4711-c0de1234. Containers that share a home folder share pids too. Not a secret.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// One that is not `taken`: by a job on record, say.
std::string make_job_id(const std::function<bool(const std::string& job_id)>& taken);
// Also one of an earlier version, which had four random digits.
bool is_job_id(std::string_view text);

}  // namespace dslaunch::launch
