// The name of a job: its time of start, the launcher's pid and four random digits, for example
// 20260131-174502-4711-c0de. Containers that share a home folder share pids too. Not a secret.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

std::string make_job_id();
bool is_job_id(std::string_view text);

}  // namespace dslaunch::launch
