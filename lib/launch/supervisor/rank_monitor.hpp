// Follows the ranks of an attempt by what their agents report: records, output, ends, ranks that may hang or have not
// joined. One thread.
#pragma once
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/job_control.hpp"
#include "launch/supervisor/stall_watch.hpp"

namespace dslaunch::launch {

class RankMonitor {
 public:
  RankMonitor(Attempt& attempt, JobControl& control) : attempt_(attempt), control_(control) {}

  // Each throws Error for a rank that the node does not have.
  void started(const NodeSession& node, const RankStarted& started);
  void wrote(const NodeSession& node, const RankOutput& output);
  void ended(const NodeSession& node, const RankEnded& ended);
  void states_changed(const NodeSession& node, const RankStates& states);
  void stuck(const NodeSession& node, const ProcessStuck& stuck);

  void missing(const RanksMissing& missing) { missing_ = missing.ranks; }
  // The ranks that have not joined the store.
  const std::vector<int>& not_joined() const { return missing_; }

  // Of an `exec` of several ranks, as its agent reports it; else busy.
  RankActivity activity_of(int rank) const { return stalls_.activity_of(rank); }

  // Reports ranks that may hang, while the job runs.
  void report_stalls();
  // When to call report_stalls() again.
  Deadline next_due() const;

 private:
  Attempt& attempt_;
  JobControl& control_;
  StallWatch stalls_;
  std::vector<int> missing_;
  int num_ended_ = 0;
};

}  // namespace dslaunch::launch
