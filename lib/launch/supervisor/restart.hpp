// Decides whether to restart a failed job, on which hosts, and how its global batch divides there. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/launch_options.hpp"
#include "launch/records/job_kind.hpp"
#include "launch/supervisor/job_report.hpp"

namespace dslaunch::launch {

struct RestartDecision {
  bool restart = false;
  std::vector<std::string> without;   // hosts to leave out
  std::string text;                   // why, or why not; empty if there is nothing to report
  std::chrono::milliseconds wait{0};  // before the restart
  // Not kNone: the job would have been restarted, but a stop was requested. The exit code is then that of the stop.
  StopReason instead = StopReason::kNone;
};

// `num_done`: restarts so far. `num_nodes`: of the attempt that failed. A worker that rejects its input (a config, a
// model, a loss that is not finite) would do so again; a job that was stopped on request, or whose agent was, must not
// continue.
RestartDecision decide_restart(const JobReport& report, JobKind kind, const LaunchOptions& options, int num_done,
                               int num_nodes);

// The message for a restart that has to wait; `text`: of the decision.
std::string restart_after(std::chrono::milliseconds wait, const std::string& text);

// The message for a stop that replaces a restart.
std::string no_restart_because(StopReason reason);

struct BatchSplit {
  int64_t micro_batch = 1, accumulation = 1;
};

// The same global batch on another number of data ranks: the largest micro batch that is not larger than before. Empty
// if the global batch does not divide.
std::optional<BatchSplit> split_batch(int64_t global_batch, int64_t micro_batch_before, int64_t data_ranks);

}  // namespace dslaunch::launch
