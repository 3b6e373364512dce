// How long a failed job waits before its restart: a job that repeatedly fails at once must not fill logs, sshd and file
// servers with its attempts. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace dslaunch::launch {

// Of a failed attempt.
struct AttemptProgress {
  std::chrono::milliseconds run_time{0};  // from the start of its ranks to the first failure
  std::optional<int64_t> last_step;       // the last step recorded in metrics.jsonl; empty: none can be read
};

class RestartBackoff {
 public:
  // `random`: numbers in [0, 1).
  explicit RestartBackoff(std::function<double()> random) : random_(std::move(random)) {}

  // The wait before the restart after this attempt. None after the first attempt and after one that made progress: a
  // step that no earlier attempt had reached, or a minute of life. Then 1 s, doubling to 60 s, each ±20 %.
  std::chrono::milliseconds next(const AttemptProgress& attempt);

 private:
  bool made_progress(const AttemptProgress& attempt);

  std::function<double()> random_;
  int64_t furthest_step_ = 0;
  int num_without_progress_ = 0;  // consecutive attempts; the first attempt, and one with progress, start the count
};

}  // namespace dslaunch::launch
