// The messages printed while a job waits: which hosts or ranks are missing, and what is known of each. Pure.
#pragma once
#include <string>
#include <vector>

#include "launch/supervisor/job_outcome.hpp"

namespace dslaunch::launch {

std::string describe_waiting(const std::string& host, bool greeted);

// "waiting for 2 of 8 ranks to join: 3 (on b, pid 812, runs but has not joined), 5 (on b, ended: exit code 1)"; names
// at most eight.
std::string describe_missing_ranks(std::vector<int> missing, const std::vector<RankRecord>& records);

}  // namespace dslaunch::launch
