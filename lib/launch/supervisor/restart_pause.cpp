// The supervisor between two attempts: nothing runs, and a request to stop takes effect at once.
#include <poll.h>

#include <algorithm>

#include "base/error.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/supervisor/supervisor.hpp"

namespace dslaunch::launch {

StopReason Supervisor::pause_before_restart(std::chrono::milliseconds length) {
  const Deadline over = Deadline::after(length);
  while (!over.passed() && lifecycle_.late_reason() == StopReason::kNone) {
    Deadline next = std::min(over, lifecycle_.next_due());
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    options_.live->add_to(polls);
    for (Terminal* terminal : {&output_.out(), &output_.err()}) {
      polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
    }
    for (const auto& node : nodes_) {
      if (!node.accepts_messages()) continue;
      polls.add(node.input(), POLLIN);
      next = std::min(next, node.heartbeats().next());
    }
    polls.wait(next);
    while (auto signal = signals_.take()) lifecycle_.take_signal_in_pause(*signal);
    for (const auto& stop : options_.live->serve(polls)) lifecycle_.take_stop(stop, Deadline::Clock::now());
    while (lifecycle_.due(Deadline::Clock::now())) {
    }
    report_errors();
    output_.out().flush();
    output_.err().flush();
    for (auto& node : nodes_) hear_pausing_node(node);
  }
  return lifecycle_.late_reason();
}

// An externally started node stays connected until it is dismissed: it needs heartbeats, and forwards its signals.
void Supervisor::hear_pausing_node(NodeSession& node) {
  if (!node.accepts_messages()) return;
  node.flush();
  bool there = node.receive() && !node.lost();
  try {
    while (auto message = node.next()) {
      if (const auto* taken = std::get_if<SignalTaken>(&*message)) lifecycle_.take_signal_in_pause(taken->signal);
    }
  } catch (const Error&) {
    there = false;  // its messages cannot be used
  }
  if (!there) node.close();
}

}  // namespace dslaunch::launch
