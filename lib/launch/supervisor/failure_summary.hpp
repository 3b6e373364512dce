// The last output of a failed job: which rank failed first, where, why, and its last standard error; also as JSON.
#pragma once
#include <string>

#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_report.hpp"

namespace dslaunch::launch {

// What happened to the ranks: "" for a job whose ranks all succeeded. Ends with a newline otherwise.
std::string format_summary(const LaunchPlan& plan, const JobReport& report);

// The line of the summary with the cause; "" for a success, and if nothing that happened to the ranks explains the end.
std::string cause_text(const LaunchPlan& plan, const JobReport& report);

// One line for the job's record; "" after a success.
std::string recorded_cause(const LaunchPlan& plan, const JobReport& report);

// Why a job was ended from outside, as text; "" for kNone.
const char* reason_text(StopReason reason);

// One document: job, run directory, exit code, the last line of metrics.jsonl as `metrics_line`, first failure, hosts
// that failed, every rank. Reads no file.
std::string summary_json(const LaunchPlan& plan, const JobReport& report, const std::string& metrics_line);

}  // namespace dslaunch::launch
