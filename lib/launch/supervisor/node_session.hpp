// One node of a job as its supervisor sees it: the way to the agent, the conversation with it, and how far it has come.
// One thread.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>

#include "launch/channel/channel.hpp"
#include "launch/channel/heartbeat_monitor.hpp"
#include "launch/plan/launch_plan.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::launch {

class NodeSession {
 public:
  NodeSession(const PlannedNode& plan, std::unique_ptr<spawn::AgentLink> link);

  const PlannedNode& plan() const { return *plan_; }
  const std::string& host() const { return plan_->host; }
  spawn::AgentLink& link() { return *link_; }

  void send(const Message& message);
  // What is there to be written, and heartbeats where the other side would miss us.
  void flush();
  // Takes in what is there; messages are then to be had from next(). False at the other side's end.
  bool receive();
  // In place of receive(), in a turn in which we do not listen: what it has to say waits, so its silence is ours.
  void pause_reading() { heartbeats_.heard(); }
  std::optional<Message> next() { return channel_.next(); }
  std::string noise() const { return channel_.noise(); }
  int input() const { return channel_.input(); }
  int output() const { return channel_.output(); }
  size_t num_unsent() const { return channel_.num_unsent(); }
  const HeartbeatMonitor& heartbeats() const { return heartbeats_; }
  bool lost() { return heartbeats_.lost(); }
  // From then on silence counts: before it the agent may not be there yet, and has nothing to say after its greeting.
  void describe(const JobDescription& job, std::chrono::milliseconds silence_limit);

  // Nothing more is wanted or will come.
  void close();
  bool closed() const { return closed_; }
  // Nothing more is to be heard: closed, or all was said. A node may still be there then: the one that holds the store
  // stays until all are over, and one that came to us waits for our last word.
  bool over() const { return closed_ || has_come_to(Stage::kDone); }
  // What comes from a shell around the agent, behind its last message, is not for us; a node that came to us passes its
  // signals on until the job's end.
  bool accepts_messages() const { return !closed_ && (!has_come_to(Stage::kDone) || plan_->reach == Reach::kDialIn); }

  // How far its agent has come, by its own words. One may be left out; there is no way back.
  enum class Stage { kComing, kGreeted, kReady, kDone };
  bool has_come_to(Stage stage) const { return stage_ >= stage; }
  void come_to(Stage stage) { stage_ = std::max(stage_, stage); }

  Deadline greeting_due = Deadline::never();
  bool greeting_overdue() const { return !has_come_to(Stage::kGreeted) && greeting_due.passed(); }

  AgentHello hello;          // once it has greeted
  uint16_t master_port = 0;  // that it holds, once it is ready

 private:
  const PlannedNode* plan_;
  std::unique_ptr<spawn::AgentLink> link_;
  Channel channel_;
  HeartbeatMonitor heartbeats_;
  Stage stage_ = Stage::kComing;
  bool closed_ = false;
};

}  // namespace dslaunch::launch
