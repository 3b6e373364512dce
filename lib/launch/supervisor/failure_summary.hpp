// The last thing a failed job prints: who failed first, where, why, with its last words. And the same for programs.
#pragma once
#include <string>

#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_report.hpp"

namespace dslaunch::launch {

// Of what happened to its ranks: "" for a job whose ranks all succeeded. Ends with a newline otherwise.
std::string format_summary(const LaunchPlan& plan, const JobReport& report);

// The one line of it that says why; "" for a success, and where nothing of the ranks' explains it.
std::string tell_cause(const LaunchPlan& plan, const JobReport& report);

// Why a job was ended from outside, in words; "" for kNone.
const char* reason_text(StopReason reason);

// One document: job, run folder, exit code, the last line of metrics.jsonl, first failure, hosts that failed, every
// rank.
std::string story_json(const LaunchPlan& plan, const JobReport& report);

// ROOT/logs/HOST.RANK.log
std::string log_path(const std::string& root, const std::string& host, int rank);

}  // namespace dslaunch::launch
