// Decides when to report that ranks of an `exec` may hang, and the text: some ranks use no CPU time and print nothing,
// as ranks do that wait for a missing peer. Which rank is missing cannot be seen from outside, so the line has the
// state of every rank. Reports a stall in one line, again after 5 and 15 minutes of it; never ends the job. Pure: the
// time is an argument.
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

  // As the rank's agent reports it: idle means idle for IdleWindow::kLength.
  void take(const RankActivity& activity, Time now);
  // The rank is not part of any stall from now on.
  void rank_ended(int rank, Time now);

  // The rank's last reported state; busy if none was reported.
  RankActivity activity_of(int rank) const {
    const auto found = quiet_.find(rank);
    return found == quiet_.end() ? RankActivity{.rank = rank} : found->second;
  }

  // When a line may be due; Time::max(): not before a state changes.
  Time next_due() const { return next_line_; }
  // The line that is due, or nothing. `records`: of all ranks.
  std::optional<std::string> due(const std::vector<RankRecord>& records, const std::string& job_id, Time now);

 private:
  void begin(Time now);
  std::string states_text(const std::vector<RankRecord>& records) const;
  void on_change(Time now);

  std::map<int, RankActivity> quiet_;  // ranks that are not busy
  bool is_stalled_ = false;
  Time since_{};                // when the stall began
  size_t num_told_ = 0;         // lines reported for this stall
  Time last_line_{};            // of this stall
  size_t num_quiet_told_ = 0;   // ranks that were not busy in the last line
  size_t num_stalls_over_ = 0;  // reported stalls that ended by themselves
  Time next_line_ = Time::max();
};

}  // namespace dslaunch::launch
