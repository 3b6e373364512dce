// How long a failed job waits before it is started again: a job that fails at once, again and again, must not fill
// logs, sshd and file servers with its attempts. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace dslaunch::launch {

// Of an attempt that failed.
struct AttemptProgress {
  std::chrono::milliseconds lived{0};  // from the start of its ranks to the first failure
  std::optional<int64_t> last_step;    // the last step on record in metrics.jsonl; empty: none can be seen
};

class RestartBackoff {
 public:
  // `random`: numbers in [0, 1).
  explicit RestartBackoff(std::function<double()> random) : random_(std::move(random)) {}

  // The wait before the restart that follows this attempt. None after the first attempt and after one that made
  // progress: a step that no attempt before it had done, or a minute of life. Then 1 s, doubling to 60 s, each ±20 %.
  std::chrono::milliseconds next(const AttemptProgress& attempt);

 private:
  bool made_progress(const AttemptProgress& attempt);

  std::function<double()> random_;
  int64_t furthest_step_ = 0;
  int num_without_progress_ = 0;  // attempts in a row; the first attempt, and one with progress, begin a row
};

}  // namespace dslaunch::launch
