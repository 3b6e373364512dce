#include "launch/supervisor/restart_pause.hpp"

#include <poll.h>

#include <algorithm>

#include "base/error.hpp"
#include "launch/event_loop/poll_set.hpp"

namespace dslaunch::launch {

namespace {

// An externally started node stays connected until it is dismissed: it needs heartbeats, and forwards its signals.
void hear_pausing_node(NodeSession& node, JobLifecycle& lifecycle) {
  if (!node.accepts_messages()) return;
  node.flush();
  bool there = node.receive() && !node.lost();
  try {
    while (auto message = node.next()) {
      if (const auto* taken = std::get_if<SignalTaken>(&*message)) lifecycle.take_signal_in_pause(taken->signal);
    }
  } catch (const Error&) {
    there = false;  // its messages cannot be used
  }
  if (!there) node.close();
}

}  // namespace

StopReason pause_before_restart(Attempt& attempt, std::chrono::milliseconds length) {
  const Deadline over = Deadline::after(length);
  while (!over.passed() && attempt.lifecycle.late_reason() == StopReason::kNone) {
    Deadline next = std::min(over, attempt.lifecycle.next_due());
    PollSet polls;
    polls.add(attempt.signals.fd(), POLLIN);
    attempt.options.live->add_to(polls);
    for (Terminal* terminal : {&attempt.output.out(), &attempt.output.err()}) {
      polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
    }
    for (const auto& node : attempt.nodes) {
      if (!node.accepts_messages()) continue;
      polls.add(node.input(), POLLIN);
      next = std::min(next, node.heartbeats().next());
    }
    polls.wait(next);
    while (auto signal = attempt.signals.take()) attempt.lifecycle.take_signal_in_pause(*signal);
    for (const auto& stop : attempt.options.live->serve(polls))
      attempt.lifecycle.take_stop(stop, Deadline::Clock::now());
    while (attempt.lifecycle.due(Deadline::Clock::now())) {
    }
    attempt.report_errors();
    attempt.output.out().flush();
    attempt.output.err().flush();
    for (auto& node : attempt.nodes) hear_pausing_node(node, attempt.lifecycle);
  }
  return attempt.lifecycle.late_reason();
}

}  // namespace dslaunch::launch
