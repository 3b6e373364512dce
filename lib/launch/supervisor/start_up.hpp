// The start-up of an attempt: opens the links to all hosts, waits for the greetings of their agents, sends each agent
// the job's description, and has the ranks started once all agents are ready. One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.hpp"
#include "launch/channel/message.hpp"
#include "launch/supervisor/attempt.hpp"
#include "launch/supervisor/job_control.hpp"

namespace dslaunch::launch {

class StartUp {
 public:
  StartUp(Attempt& attempt, JobControl& control);

  void open_links();
  // Throws Error for an agent of another version.
  void greeted(NodeSession& node, const AgentHello& hello);
  // Decides once every host has greeted or failed: all hosts are needed, and all unreachable hosts are reported
  // together. Hosts that do not fit together are not one host's failure: the error thrown for them ends the job.
  void check();
  void ready(NodeSession& node, const AgentReady& ready);

  // When the agents have to be ready; never while they do not know the job.
  Deadline preparation_due() const { return prepared_; }
  // True once when that time has passed.
  bool take_preparation_overdue();

 private:
  std::unique_ptr<spawn::AgentLink> open_link(const PlannedNode& node) const;
  void describe_job();
  void report_lost_gpus();

  Attempt& attempt_;
  JobControl& control_;
  const std::vector<uint8_t> token_;
  Deadline prepared_ = Deadline::never();
};

}  // namespace dslaunch::launch
