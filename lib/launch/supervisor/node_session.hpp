// One node of a job as its supervisor sees it: the link to the agent, the messages exchanged with it, and the agent's
// progress. One thread.
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

  void send(const MessageToAgent& message);
  // Writes pending bytes, and a heartbeat when one is due.
  void flush();
  // Reads what has arrived; next() then returns the messages. False when the peer has closed its end.
  bool receive();
  // Instead of receive(), in an iteration that does not read: the agent's messages wait unread, so it is not silent.
  void pause_reading() { heartbeats_.on_received(); }
  std::optional<MessageToLauncher> next() { return channel_.next(); }
  std::string noise() const { return channel_.noise(); }
  int input() const { return channel_.input(); }
  int output() const { return channel_.output(); }
  size_t num_unsent() const { return channel_.num_unsent(); }
  const HeartbeatMonitor& heartbeats() const { return heartbeats_; }
  bool lost() { return heartbeats_.lost(); }
  // From then on silence counts: before, the agent may not run yet, and it sends nothing after its greeting.
  void describe(const JobDescription& job, std::chrono::milliseconds silence_limit);

  // No further message is wanted or will come.
  void close();
  bool closed() const { return closed_; }
  // No further message is expected: closed, or all was sent. The node may still be up: the agent that holds the store
  // stays until all nodes are over, and an externally started node waits for the launcher's last message.
  bool over() const { return closed_ || has_reached(Stage::kDone); }
  // Output of a shell around the agent, after the agent's last message, is ignored; an externally started node forwards
  // its signals until the job ends.
  bool accepts_messages() const { return !closed_ && (!has_reached(Stage::kDone) || plan_->reach == Reach::kNodeJoin); }

  // The agent's progress, as the agent reports it. A stage may be skipped; a session never returns to an earlier stage.
  enum class Stage { kConnecting, kGreeted, kReady, kDone };
  bool has_reached(Stage stage) const { return stage_ >= stage; }
  void advance_to(Stage stage) { stage_ = std::max(stage_, stage); }

  Deadline greeting_due = Deadline::never();
  bool greeting_overdue() const { return !has_reached(Stage::kGreeted) && greeting_due.passed(); }

  AgentHello hello;          // valid once the agent has greeted
  uint16_t master_port = 0;  // the port that the agent holds, once it is ready

 private:
  const PlannedNode* plan_;
  std::unique_ptr<spawn::AgentLink> link_;
  ChannelToAgent channel_;
  HeartbeatMonitor heartbeats_;
  Stage stage_ = Stage::kConnecting;
  bool closed_ = false;
};

}  // namespace dslaunch::launch
