// What an attempt of a job came to: made by the supervisor, told by job_story.hpp, judged by restart.hpp.
#pragma once
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/jobs/stuck_on_host.hpp"
#include "launch/supervisor/job_outcome.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

struct JobReport {
  JobOutcome outcome;
  StopReason reason = StopReason::kNone;
  StopReason late_reason = StopReason::kNone;  // came when a failure was ending the attempt already, or later
  bool told_to_end = false;                    // an agent was, by a signal on its host
  std::vector<RankRecord> records;             // by rank
  std::chrono::milliseconds lived{0};          // from the start of the ranks to the first thing that went wrong
  using HostFailure = std::pair<std::string, spawn::LinkFailure>;
  // Hosts that were not reached, or gone before their ranks were, and their trouble.
  std::vector<HostFailure> host_failures;
  // Where hosts, and no rank, ended the job: what came first, first. Also one whose agent could not do its part.
  std::vector<HostFailure> ended_by;
  std::vector<StuckOnHost> stuck;  // what no signal has ended, ranks among them
  std::string error;               // where neither a rank nor a host ended the job, nor somebody outside: what did
  std::string story;               // for people; empty after a success
};

}  // namespace dslaunch::launch
