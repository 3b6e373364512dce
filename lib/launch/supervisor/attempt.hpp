// What the phases of one attempt of a job share (start_up.hpp, running.hpp, shutdown.hpp): its plan, the sessions with
// its agents, its ranks, its output and its lifecycle. One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/live_job.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_lifecycle.hpp"
#include "launch/supervisor/job_output.hpp"
#include "launch/supervisor/job_report.hpp"
#include "launch/supervisor/node_session.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

struct SupervisorOptions {
  bool json = false;                        // standard output is reserved for the JSON document
  bool quiet = false;                       // the workers' standard output goes to their logs only
  LiveJob* live = nullptr;                  // the job's record, socket and files; outlives this, never null
  std::string program;                      // the running dslaunch, absolute: it is the agent of this machine
  std::vector<uint8_t> token;               // 32 bytes; empty: a fresh one
  int listener = -1;                        // for the agent of node rank 0: see open_node_link
  Deadline time_limit = Deadline::never();  // of the job, shared by all its attempts
  // When the ranks have ended: whether the end of the job removes the run directory, and moves its logs. Empty: never.
  std::function<bool()> moves_logs;
  std::chrono::milliseconds preparation_time{300000};  // for the agents to be ready, once they know the job
  // By node; empty: the supervisor opens the link.
  std::vector<std::unique_ptr<spawn::AgentLink>> links;
};

// Of a plan's ranks before any of them has started.
std::vector<RankRecord> records_of(const LaunchPlan& plan);

struct Attempt {
  Attempt(LaunchPlan plan, SupervisorOptions options);

  // An agent may only report its own ranks: throws Error otherwise, since the peer may be any program that reached the
  // port.
  RankRecord& record_of(const NodeSession& node, int rank);
  // Once per process, even if it is reported twice. `rank`: -1 for a process that a rank left behind.
  void record_stuck(const PlannedNode& node, int rank, const spawn::StuckProcess& process);
  // For the user; names the host if there are several.
  void print_from(const NodeSession& node, const std::string& what);
  // Prints what could not be written to the job's files and record.
  void report_errors();
  // For a reader, or a file, that accepts nothing while the job ends.
  std::chrono::milliseconds reader_timeout() const {
    return lifecycle.stop_requested() ? Terminal::kStopRequestedTimeout : Terminal::kTimeout;
  }

  LaunchPlan plan;
  SupervisorOptions options;
  SignalInbox signals;
  JobOutput output;
  std::deque<NodeSession> nodes;    // by node rank
  std::vector<RankRecord> records;  // by rank
  JobLifecycle lifecycle;
  bool described = false;  // the agents have got the job's description: ranks may exist

  // For the report.
  std::vector<JobReport::HostFailure> host_failures;
  std::optional<JobReport::HostFailure> agent_failure;  // the one that began the job's end
  std::vector<StuckOnHost> stuck;
  std::chrono::milliseconds run_time{0};  // see JobReport
};

// How the attempt ended, once no process of it is left.
JobReport report_of(const Attempt& attempt);

}  // namespace dslaunch::launch
