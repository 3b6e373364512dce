#include "launch/supervisor/running.hpp"

#include <poll.h>

#include <algorithm>
#include <csignal>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/overloaded.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/supervisor/missing_ranks.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Stage = NodeSession::Stage;

constexpr auto kProgressReportInterval = 10000ms;

}  // namespace

Running::Running(Attempt& attempt, JobControl& control, StartUp& start_up)
    : attempt_(attempt),
      control_(control),
      start_up_(start_up),
      node_monitor_(attempt, control, start_up),
      rank_monitor_(attempt, control),
      stacks_(attempt),
      status_(attempt, rank_monitor_),
      slow_output_(attempt),
      next_progress_report_(Deadline::after(kProgressReportInterval)) {}

void Running::until_done() {
  while (attempt_.lifecycle.state() != JobState::kDone) poll_once();
}

void Running::poll_once() {
  JobOutput& output = attempt_.output;
  FileThread& files = attempt_.options.live->files();
  slow_output_.check();
  if (!files.has_room()) files.wake_when_idle();
  // While everything is killed, neither a slow reader nor a stalled file may delay that.
  const bool may_read = attempt_.lifecycle.state() == JobState::kKilling || output.has_room();
  PollSet polls;
  polls.add(attempt_.signals.fd(), POLLIN);
  const std::vector<size_t> inputs = add_nodes(polls, may_read);
  for (Terminal* terminal : {&output.out(), &output.err()}) {
    polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
  }
  attempt_.options.live->add_to(polls);
  polls.wait(next_wakeup());
  while (auto signal = attempt_.signals.take()) take_signal(*signal);
  serve_clients(polls);
  attempt_.report_errors();
  output.poll_once();
  output.out().flush();
  output.err().flush();
  for (size_t i = 0; i < attempt_.nodes.size(); ++i) {
    NodeSession& node = attempt_.nodes[i];
    node.flush();
    if (!may_read) node.pause_reading();
    if (polls.ready(inputs[i])) receive(node);
  }
  check_deadlines();
}

// Returns the indices of the nodes' inputs.
std::vector<size_t> Running::add_nodes(PollSet& polls, bool may_read) const {
  std::vector<size_t> inputs;
  for (const auto& node : attempt_.nodes) {
    inputs.push_back(polls.add(may_read && node.accepts_messages() ? node.input() : -1, POLLIN));
    polls.add(node.num_unsent() > 0 ? node.output() : -1, POLLOUT);
  }
  return inputs;
}

Deadline Running::next_wakeup() const {
  return std::min({attempt_.lifecycle.next_due(), next_progress_report_, attempt_.output.next_turn(),
                   slow_output_.next_due(), stacks_.next_due(), status_.next_due(), rank_monitor_.next_due(),
                   node_monitor_.next_due()});
}

void Running::serve_clients(const PollSet& polls) {
  LiveJob& live = *attempt_.options.live;
  for (const auto& stop : live.serve(polls)) {
    control_.carry_out(attempt_.lifecycle.take_stop(stop, Deadline::Clock::now()));
  }
  for (const auto& asked : live.take_stacks_requests()) stacks_.request(asked);
  for (const uint64_t client : live.take_rank_status_requests()) status_.request(client);
}

void Running::check_deadlines() {
  start_up_.check();
  stacks_.answer_when_due();
  status_.check();
  while (const auto order = attempt_.lifecycle.due(Deadline::Clock::now())) control_.carry_out(*order);
  if (next_progress_report_.passed()) {
    next_progress_report_ = Deadline::after(kProgressReportInterval);
    report_missing();
  }
  rank_monitor_.report_stalls();
  node_monitor_.check_deadlines();
}

void Running::receive(NodeSession& node) {
  const bool there = node.receive();
  try {
    while (node.accepts_messages()) {
      auto message = node.next();
      if (!message) break;
      handle(node, *message);
    }
  } catch (const Error& error) {
    return node_monitor_.give_up(node, {error.code(), "agent", error.what()});
  }
  if (!there) node_monitor_.closed(node);
}

void Running::handle(NodeSession& node, const MessageToLauncher& message) {
  const Overloaded handlers{
      [&](const AgentHello& hello) { start_up_.greeted(node, hello); },
      [&](const AgentReady& ready) { start_up_.ready(node, ready); },
      [&](const AgentFailed& failed) { node_monitor_.failed(node, failed); },
      [&](const RankStarted& started) { rank_monitor_.started(node, started); },
      [&](const RankOutput& output) { rank_monitor_.wrote(node, output); },
      [&](const RankEnded& ended) { rank_monitor_.ended(node, ended); },
      [&](const ProcessStuck& stuck) { rank_monitor_.stuck(node, stuck); },
      [&](const RanksMissing& missing) { rank_monitor_.missing(missing); },
      [&](const RankStates& states) { rank_monitor_.states_changed(node, states); },
      [&](const RankStacks& stacks) { stacks_.take(node, stacks); },
      [&](const NodeStatus& status) { status_.take(node, status); },
      [&](const SignalTaken& taken) { take_signal(taken.signal, &node); },
      [&](const AgentDone&) { agent_done(node); },
      [](const Heartbeat&) {},  // receiving it was enough
  };
  std::visit(handlers, message);
}

void Running::agent_done(NodeSession& node) {
  // Otherwise the agent ended without being told to: it has left, and will be lost.
  if (node.has_reached(Stage::kReady) || !attempt_.lifecycle.end_not_begun()) node.advance_to(Stage::kDone);
  control_.end_if_all_over();
}

void Running::take_signal(int signal, const NodeSession* from) {
  if (signal == SIGTSTP) {
    attempt_.output.info("a job on several machines cannot be suspended: --detach starts one in the background");
  } else if (!is_stop_signal(signal, attempt_.plan.kind)) {
    if (user_signals_[signal].take(from)) control_.send_to_all(SignalRanks{signal});
  } else if (const auto order = attempt_.lifecycle.take_signal(signal, from, Deadline::Clock::now())) {
    control_.carry_out(*order);
    attempt_.lifecycle.signal_handled(signal, from, Deadline::Clock::now());
  }
}

void Running::report_missing() {
  if (attempt_.lifecycle.state() == JobState::kStarting) {
    std::vector<std::string> waiting;
    for (const auto& node : attempt_.nodes) {
      if (node.has_reached(Stage::kReady) || node.closed()) continue;
      waiting.push_back(describe_waiting(node.host(), node.has_reached(Stage::kGreeted)));
    }
    if (!waiting.empty()) attempt_.output.info(fmt::format("waiting for {}", fmt::join(waiting, ", ")));
  } else if (attempt_.lifecycle.state() == JobState::kRunning && !rank_monitor_.not_joined().empty()) {
    attempt_.output.info(describe_missing_ranks(rank_monitor_.not_joined(), attempt_.records));
  }
}

}  // namespace dslaunch::launch
