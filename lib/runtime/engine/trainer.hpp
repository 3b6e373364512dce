// A training run from model file to last checkpoint, on one rank. One thread.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "comm/watchdog.hpp"
#include "config/job_config.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/placement.hpp"
#include "runtime/telemetry/run_timings.hpp"

namespace dslaunch::runtime {

struct TrainRequest {
  std::string model_path;
  std::string run_dir;
  config::JobConfig config;
  std::string resolved_config;  // JSON, stored beside the run and in checkpoints with "auto" filled in
  std::string device = "cpu";   // torch's name: "cpu", "cuda:0"
  std::string resume;           // "", "auto" or a checkpoint's path
  std::string job;              // its id; empty: not known
  // In a restart of a job that did not begin with "auto": its `resume` then. "auto" is what this very job saved.
  std::optional<std::string> begin_from;
  bool eval_only = false;
  int64_t verify = 0;   // steps of this start that run beside an unsharded replica
  Placement placement;  // where this rank sits; on several hosts the checkpoints' folders are asked about
  bool quiet = false;   // no progress lines
  // The world's ranks a second time, for stage 3's gathers on a device; null: they share `world`.
  comm::Communicator* gather_group = nullptr;
  comm::Communicator* secondary_group = nullptr;  // hpZ: the ranks of a host; null: off
  std::optional<int64_t> trace_step;              // "--trace"
  RunTimings* timings = nullptr;                  // where to say what has ended; may be null
  std::function<bool()> stop_requested = [] { return false; };
  std::chrono::milliseconds hang_limit = std::chrono::minutes(30);  // of a wait for other ranks
  comm::Watchdog* watchdog = nullptr;                               // hears what the run is at; may be null
};

enum class TrainOutcome { kFinished, kStopped };

// Collective over `world` (all of its ranks call it). Throws typed errors.
TrainOutcome train(const TrainRequest& request, comm::Communicator& world, rendezvous::Store& store);

}  // namespace dslaunch::runtime
