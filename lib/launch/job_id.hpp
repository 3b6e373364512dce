// The name of a job: its time of start and the launcher's pid, for example 20260131-174502-4711. Not a secret.
#pragma once
#include <string>

namespace dslaunch::launch {

std::string make_job_id();

}  // namespace dslaunch::launch
