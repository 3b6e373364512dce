// Notices that a node is lost: its link has closed, its messages cannot be used, or its agent does not greet, does not
// get ready, or has fallen silent. One thread.
#pragma once
#include <string>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/job_control.hpp"
#include "launch/supervisor/start_up.hpp"

namespace dslaunch::launch {

class NodeMonitor {
 public:
  NodeMonitor(Attempt& attempt, JobControl& control, StartUp& start_up)
      : attempt_(attempt), control_(control), start_up_(start_up) {}

  // The agent's end of the link has closed.
  void closed(NodeSession& node);
  // Ends the link: the agent's messages cannot be used, or do not come.
  void give_up(NodeSession& node, const spawn::LinkFailure& why);
  // The agent reports that it cannot do its part.
  void failed(NodeSession& node, const AgentFailed& failed);
  // Gives up hosts that do not answer at all, and hosts that have fallen silent.
  void check_deadlines();
  // When to call check_deadlines() again.
  Deadline next_due() const;

 private:
  std::string overdue_text(NodeSession& node, bool unprepared) const;
  void on_agent_lost(NodeSession& node, const spawn::LinkFailure& failure);

  Attempt& attempt_;
  JobControl& control_;
  StartUp& start_up_;
};

}  // namespace dslaunch::launch
