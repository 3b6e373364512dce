// Examines this machine for doctor: which processes hold the ports, which processes are stale, which files are left
// over. Changes nothing. Waits 0.2 s if it has to distinguish stuck processes from busy ones. One thread.
#pragma once
#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

DoctorReport examine(const DoctorQuery& query);

// Directories that may contain pid files and private directories of jobs: TMPDIR, and /tmp for files of other programs.
std::vector<std::string> temporary_dirs();

}  // namespace dslaunch::launch
