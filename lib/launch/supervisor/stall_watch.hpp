// When to say that ranks of an `exec` may hang, and what: some of them use no CPU time and print nothing, which is how
// ranks look that wait for one that does not come. Which one that is cannot be known from outside, so the line has the
// state of every rank. Says one line for a stall, again after 5 and 15 minutes of it; never ends the job. Pure: the
// time is handed in.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/channel/message.hpp"
#include "launch/supervisor/job_outcome.hpp"

namespace dslaunch::launch {

class StallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // As its agent tells it: idle means that it has been for IdleWindow::kLength.
  void take(const RankActivity& activity, Time now);
  // It is no part of any stall from now on.
  void rank_ended(int rank, Time now);

  // When there may be something to say; Time::max(): not before something changes.
  Time next_due() const { return next_line_; }
  // The line that is due, or nothing. `records`: of all ranks.
  std::optional<std::string> due(const std::vector<RankRecord>& records, const std::string& job_id, Time now);

 private:
  void begin(Time now);
  std::string states_text(const std::vector<RankRecord>& records) const;
  void on_change(Time now);

  std::map<int, RankActivity> quiet_;  // ranks that are not busy
  bool is_stalled_ = false;
  Time since_{};                // the stall's begin
  size_t num_told_ = 0;         // lines of this stall
  Time last_line_{};            // of this stall
  size_t num_quiet_told_ = 0;   // ranks that were not busy in the last line
  size_t num_stalls_over_ = 0;  // stalls that were told of and ended by themselves
  Time next_line_ = Time::max();
};

}  // namespace dslaunch::launch
