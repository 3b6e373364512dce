// The last thing a failed job prints: who failed first, where, why, with its last words. And the same for programs.
#pragma once
#include <string>
#include <vector>

#include "launch/job_outcome.hpp"
#include "launch/launch_plan.hpp"

namespace dslaunch::launch {

// "" for a job whose ranks all succeeded. Ends with a newline otherwise.
std::string tell_story(const LaunchPlan& plan, const std::vector<RankRecord>& records, const JobOutcome& outcome,
                       StopReason reason);

// One document: job, run folder, exit code, first failure, every rank.
std::string story_json(const LaunchPlan& plan, const std::vector<RankRecord>& records, const JobOutcome& outcome,
                       StopReason reason);

// RUN_DIR/logs/HOST.RANK.log
std::string log_path(const std::string& run_dir, const std::string& host, int rank);

}  // namespace dslaunch::launch
