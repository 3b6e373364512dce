// Looks at this machine for doctor: who holds the ports, who is stale, what was left behind. Changes nothing. Waits a
// fifth of a second where it has to tell a process that is stuck from one that is busy. One thread.
#pragma once
#include "launch/doctor/finding.hpp"

namespace dslaunch::launch {

DoctorReport examine(const DoctorQuery& query);

// Where pid files and private folders of jobs may lie: TMPDIR, and /tmp for what others write there.
std::vector<std::string> temporary_folders();

}  // namespace dslaunch::launch
