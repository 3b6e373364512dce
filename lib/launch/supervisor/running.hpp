// The event loop of an attempt: from open links until every agent has finished or is lost. One thread;
// job_lifecycle.hpp decides what to do in which state.
#pragma once
#include <map>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/job_control.hpp"
#include "launch/supervisor/node_monitor.hpp"
#include "launch/supervisor/rank_monitor.hpp"
#include "launch/supervisor/signal_deduplicator.hpp"
#include "launch/supervisor/slow_output_watch.hpp"
#include "launch/supervisor/stack_service.hpp"
#include "launch/supervisor/start_up.hpp"
#include "launch/supervisor/status_service.hpp"

namespace dslaunch::launch {

class Running {
 public:
  Running(Attempt& attempt, JobControl& control, StartUp& start_up);

  // Returns when the lifecycle is done. Throws what makes the supervisor unable to continue.
  void until_done();

 private:
  void poll_once();
  std::vector<size_t> add_nodes(PollSet& polls, bool may_read) const;
  Deadline next_wakeup() const;
  void serve_clients(const PollSet& polls);
  void receive(NodeSession& node);
  void handle(NodeSession& node, const MessageToLauncher& message);
  void agent_done(NodeSession& node);
  void take_signal(int signal, const NodeSession* from = nullptr);  // null: this process
  void check_deadlines();
  void report_missing();

  Attempt& attempt_;
  JobControl& control_;
  StartUp& start_up_;
  NodeMonitor node_monitor_;
  RankMonitor rank_monitor_;
  StackService stacks_;
  StatusService status_;
  SlowOutputWatch slow_output_;
  std::map<int, UserSignalDeduplicator> user_signals_;  // by signal
  Deadline next_progress_report_;
};

}  // namespace dslaunch::launch
