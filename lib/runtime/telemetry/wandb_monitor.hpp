// "wandb": curves to Weights & Biases through the user's own Python client, in a process beside rank 0. The client's
// environment variables (WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_ID, WANDB_MODE, …) hold, except where the config names
// the same thing. A client that is slow or gone never stops the training: points are then dropped, with a warning. One
// thread; a second one writes to the client.
#pragma once
#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/unique_fd.hpp"
#include "runtime/telemetry/monitor.hpp"

namespace dslaunch::runtime {

class WandbMonitor final : public Monitor {
 public:
  // Starts the client and waits until it has a run. RUN_DIR/wandb_run_id keeps the run's id: with `resumes` that run is
  // continued. Throws UserError(69) when the client is missing, or with its reason when it refuses.
  WandbMonitor(const config::Wandb& config, const std::string& run_dir, bool resumes, const std::string& job_config);
  // Waits for the client to send what it has, 60 s at most.
  ~WandbMonitor() override;
  WandbMonitor(const WandbMonitor&) = delete;
  WandbMonitor& operator=(const WandbMonitor&) = delete;
  void write(std::span<const ScalarEvent> events) override;

 private:
  static constexpr size_t kMaxWaiting = 10'000;  // lines

  void start(const std::string& settings);
  std::string read_answer();
  void send_lines();

  pid_t process_ = -1;
  UniqueFd socket_;  // to its standard input, from its answer
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;  // guarded by mutex_, as are the next two
  bool is_ending_ = false, is_gone_ = false;
  bool has_warned_ = false;
  std::thread sender_;
};

}  // namespace dslaunch::runtime
