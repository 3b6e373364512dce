// Shall a failed job be started again, on which hosts, and how does its global batch divide there? Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/channel/job_kind.hpp"
#include "launch/launch_options.hpp"
#include "launch/supervisor/job_report.hpp"

namespace dslaunch::launch {

struct RestartDecision {
  bool restart = false;
  std::vector<std::string> without;   // hosts to leave out
  std::string text;                   // why, or why not; empty where nothing needs to be said
  std::chrono::milliseconds wait{0};  // before the restart
  // Not kNone: there would have been a restart, had nobody asked for an end. The job's exit code is that end's then.
  StopReason instead = StopReason::kNone;
};

// `num_done`: restarts so far. `num_nodes`: of the attempt that failed. A worker's verdict on its input (a config, a
// model, a loss that is not finite) would be the same again; a job that somebody stopped, or an agent of it, is not to
// go on.
RestartDecision decide_restart(const JobReport& report, JobKind kind, const LaunchOptions& options, int num_done,
                               int num_nodes);

// What is said of a restart that has to wait; `text`: of the decision.
std::string restart_after(std::chrono::milliseconds wait, const std::string& text);

// What is said of an end that takes the place of a restart.
std::string no_restart_because(StopReason reason);

struct BatchSplit {
  int64_t micro_batch = 1, accumulation = 1;
};

// The same global batch on another number of ranks: the largest micro batch that is not larger than before. Empty when
// it does not divide.
std::optional<BatchSplit> split_batch(int64_t global_batch, int64_t micro_batch_before, int64_t world_size);

}  // namespace dslaunch::launch
