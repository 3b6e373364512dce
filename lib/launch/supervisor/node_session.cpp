#include "launch/supervisor/node_session.hpp"

#include <utility>

namespace dslaunch::launch {
namespace {

ChannelToAgent channel_of(spawn::AgentLink& link) {
  spawn::LinkEnds ends = link.take_ends();
  return ChannelToAgent(std::move(ends.from_agent), std::move(ends.to_agent));
}

}  // namespace

NodeSession::NodeSession(const PlannedNode& plan, std::unique_ptr<spawn::AgentLink> link)
    : plan_(&plan), link_(std::move(link)), channel_(channel_of(*link_)) {
  if (plan.reach == Reach::kSsh || plan.reach == Reach::kSrun) channel_.expect_greeting();
}

void NodeSession::describe(const JobDescription& job, std::chrono::milliseconds silence_limit) {
  // An agent of this machine sees the supervisor's end by the pipe's, and does not count the supervisor's silence.
  const bool expects_heartbeats = plan_->reach != Reach::kPipe;
  heartbeats_.begin(silence_limit, expects_heartbeats ? HeartbeatMonitor::interval_for(silence_limit)
                                                      : HeartbeatMonitor::Milliseconds(0));
  send(job);
}

void NodeSession::send(const MessageToAgent& message) {
  channel_.send(message);
  heartbeats_.on_sent();
}

void NodeSession::flush() {
  if (!closed_ && heartbeats_.heartbeat_due()) send(Heartbeat{});
  channel_.flush();
}

bool NodeSession::receive() {
  bool there = channel_.receive();
  if (there) heartbeats_.on_received();
  return there;
}

void NodeSession::close() {
  closed_ = true;
  channel_.close_output();
}

}  // namespace dslaunch::launch
