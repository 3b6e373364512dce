// The supervisor's part in `dslaunch top`, and the samples of all ranks in launcher.jsonl: asks the agents, and answers
// when all have, or after a time limit with those that did. One question at a time serves all who wait for it. One
// thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/rank_monitor.hpp"
#include "launch/supervisor/rank_status.hpp"

namespace dslaunch::launch {

// To all agents, until it is answered.
struct StatusQuestion {
  int64_t number = 0;
  Deadline deadline = Deadline::never();
  std::set<size_t> awaited;  // node ranks
  std::vector<uint64_t> clients;
  bool is_sample = false;  // for launcher.jsonl
  RankStatusTable table;
};

class StatusService {
 public:
  // Both outlive this.
  StatusService(Attempt& attempt, const RankMonitor& ranks);

  // A client of the job's socket.
  void request(uint64_t client);
  void take(const NodeSession& node, const NodeStatus& status);
  // Answers clients, records samples, asks for the next one.
  void check();
  // When to call check() again.
  Deadline next_due() const;

 private:
  void ask(bool with_gpus);
  void answer();
  std::chrono::milliseconds sample_interval() const;

  Attempt& attempt_;
  const RankMonitor& ranks_;
  LauncherEvents events_;
  std::optional<StatusQuestion> question_;
  std::vector<uint64_t> waiting_;  // clients that came while a question without GPUs was open
  int64_t num_questions_ = 0;
  Deadline next_sample_;
};

}  // namespace dslaunch::launch
