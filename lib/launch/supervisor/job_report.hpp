// The result of one attempt of a job: made by the supervisor, printed by failure_summary.hpp, judged by restart.hpp.
#pragma once
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/records/stuck_on_host.hpp"
#include "launch/supervisor/job_outcome.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

struct JobReport {
  JobOutcome outcome;
  StopReason reason = StopReason::kNone;
  StopReason late_reason = StopReason::kNone;  // came while a failure was already ending the attempt, or later
  bool agent_terminated = false;               // an agent was told to end, by a signal on its host
  std::vector<RankRecord> records;             // by rank
  std::chrono::milliseconds run_time{0};       // from the start of the ranks to the first failure
  using HostFailure = std::pair<std::string, spawn::LinkFailure>;
  // Hosts that were not reached, or were lost before their ranks ended, and the error of each.
  std::vector<HostFailure> host_failures;
  // If hosts ended the job and no rank did: the failures in order. Includes a host whose agent could not do its part.
  std::vector<HostFailure> ended_by;
  std::vector<StuckOnHost> stuck;  // processes that no signal has ended, ranks among them
  std::string error;               // the cause, if neither a rank, a host nor a request from outside ended the job
  std::string summary;             // the failure summary for people; empty after a success
};

}  // namespace dslaunch::launch
