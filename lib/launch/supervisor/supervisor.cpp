#include "launch/supervisor/supervisor.hpp"

#include <poll.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/described_error.hpp"
#include "base/error.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/supervisor/node_join.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {
namespace {

// An externally started node stays connected until it is dismissed: it needs heartbeats, and forwards its signals.
void receive_while_paused(NodeSession& node, JobLifecycle& lifecycle) {
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

Supervisor::Supervisor(LaunchPlan plan, SupervisorOptions options)
    : attempt_(std::move(plan), std::move(options)),
      control_(attempt_),
      start_up_(attempt_, control_),
      running_(attempt_, control_, start_up_),
      shutdown_(attempt_) {}

JobReport Supervisor::run() {
  spawn::raise_descriptor_limit();  // a link and two logs for each host and rank
  try {
    attempt_.output.open_logs();
    start_up_.open_links();
    running_.until_done();
  } catch (const std::exception& error) {
    shutdown_.shut_down_after_error(failure_message(described(error)));
    throw;
  }
  shutdown_.close_links();
  return report_of(attempt_);
}

StopReason Supervisor::pause_before_restart(std::chrono::milliseconds length) {
  const Deadline over = Deadline::after(length);
  while (!over.passed() && attempt_.lifecycle.late_reason() == StopReason::kNone) {
    Deadline next = std::min(over, attempt_.lifecycle.next_due());
    PollSet polls;
    polls.add(attempt_.signals.fd(), POLLIN);
    attempt_.options.live->add_to(polls);
    for (Terminal* terminal : {&attempt_.output.out(), &attempt_.output.err()}) {
      polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
    }
    for (const auto& node : attempt_.nodes) {
      if (!node.accepts_messages()) continue;
      polls.add(node.input(), POLLIN);
      next = std::min(next, node.heartbeats().next());
    }
    polls.wait(next);
    while (auto signal = attempt_.signals.take()) attempt_.lifecycle.take_signal_in_pause(*signal);
    for (const auto& stop : attempt_.options.live->serve(polls))
      attempt_.lifecycle.take_stop(stop, Deadline::Clock::now());
    while (attempt_.lifecycle.due(Deadline::Clock::now())) {
    }
    attempt_.report_errors();
    attempt_.output.out().flush();
    attempt_.output.err().flush();
    for (auto& node : attempt_.nodes) receive_while_paused(node, attempt_.lifecycle);
  }
  return attempt_.lifecycle.late_reason();
}

}  // namespace dslaunch::launch
