// A training run from model file to last checkpoint, on one rank. One thread.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status_page.hpp"
#include "comm/groups.hpp"
#include "comm/watchdog.hpp"
#include "config/job_config.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/placement.hpp"
#include "runtime/telemetry/run_timings.hpp"

namespace dslaunch::runtime::device {
class Device;
}

namespace dslaunch::runtime::engine::run {

struct TrainRequest {
  std::string model_path;
  std::string run_dir;
  config::JobConfig config;
  std::string resolved_config;             // JSON, stored beside the run and in checkpoints with "auto" filled in
  std::vector<std::string> auto_keys;      // dotted; their values in `resolved_config` were computed
  const device::Device* device = nullptr;  // of this rank; not null
  std::string resume;                      // "", "auto" or the path of a checkpoint
  std::string job;                         // the job's id; empty: not known
  // Set in a restart of a job whose first `resume` was not "auto": that value. "auto" then takes this job's saves only.
  std::optional<std::string> begin_from;
  bool eval_only = false;
  int64_t verify = 0;   // number of steps of this start that run beside an unsharded replica
  Placement placement;  // location of this rank; with several hosts, detects how they share checkpoint directories
  bool quiet = false;   // no progress lines
  bool live = false;    // records for a live line beside the progress lines (base/live_progress.hpp)
  // A second communicator over the data group's ranks, for stage 3's all-gathers on a device; null: they use that of
  // the groups.
  comm::Communicator* gather_group = nullptr;
  comm::Communicator* secondary_group = nullptr;  // hpZ: the data group's ranks of a host; null: off
  std::optional<int64_t> trace_step;              // "--trace"
  RunTimings* timings = nullptr;                  // receives the times of completed phases; may be null
  std::function<bool()> stop_requested = [] { return false; };
  std::chrono::milliseconds hang_limit = std::chrono::minutes(30);  // of a wait for other ranks
  comm::Watchdog* watchdog = nullptr;  // is told the current activity of the run; may be null
  StatusWriter* status = nullptr;      // is told each step; may be null
};

enum class TrainOutcome { kFinished, kStopped };

// All ranks of the world call it. Throws typed errors.
TrainOutcome train(const TrainRequest& request, const comm::Groups& groups, rendezvous::Store& store);

}  // namespace dslaunch::runtime::engine::run
