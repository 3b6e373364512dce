#include "launch/agent/agent.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/described_error.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/log.hpp"
#include "base/overloaded.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "rendezvous/own_address.hpp"
#include "rendezvous/stream_socket.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A launcher that is gone cannot wait for a checkpoint: ranks that do not end by themselves in this time are killed.
constexpr auto kGraceWithoutLauncher = 700ms;
// With more output than this waiting for the launcher, the ranks wait too.
constexpr size_t kMaxUnsentBytes = 4U << 20;

// The machine's own address towards the launcher, as sshd reports it, is one that other hosts can probably reach too.
std::string address_of_this_host() {
  const char* connection = std::getenv("SSH_CONNECTION");  // client address and port, server address and port
  std::istringstream words(connection == nullptr ? "" : connection);
  std::string client, client_port, server;
  if (words >> client >> client_port >> server && !rendezvous::is_loopback_address(server)) {
    return server;
  }
  const std::string address = rendezvous::first_interface_address();
  const bool is_version_6 = address.find(':') != std::string::npos;
  return is_version_6 ? "" : address;  // the host name works better in tcp://$MASTER_ADDR:$MASTER_PORT
}

}  // namespace

Agent::Agent(ChannelToLauncher channel, AgentOptions options)
    : options_(std::move(options)), channel_(std::move(channel)) {
  spawn::become_subreaper();
  spawn::raise_descriptor_limit();  // two pipes and a connection to the store for each rank
}

bool Agent::run() {
  AgentHello hello = options_.hello;
  hello.program_version = DSL_VERSION;
  hello.pid = ::getpid();
  hello.host_name = host_name();
  hello.address = address_of_this_host();
  hello.addresses = rendezvous::interface_addresses();
  send(hello);
  while (!finished()) poll_once();
  finish();
  return !failed_;
}

std::optional<JobEnded> Agent::await_job_ended() {
  while (auto message = channel_.next()) handle(*message);
  while (!job_ended_ && !launcher_gone_ && !exit_requested_) poll_after_ranks();
  return job_ended_;
}

void Agent::poll_after_ranks() {
  PollSet polls;
  size_t control = polls.add(channel_.input(), POLLIN);
  polls.add(channel_.num_unsent() > 0 ? channel_.output() : -1, POLLOUT);
  polls.add(signals_.fd(), POLLIN);
  if (options_.echo) options_.echo->add_to(polls);
  polls.wait(next_wakeup());
  channel_.flush();
  if (options_.echo) options_.echo->poll_once();
  take_signals();
  if (polls.ready(control)) receive();
  watch_clocks();
}

bool Agent::may_read_ranks() const {
  return channel_.num_unsent() < kMaxUnsentBytes && (!options_.echo || options_.echo->has_room());
}

void Agent::send(const MessageToLauncher& message) {
  channel_.send(message);
  heartbeats_.on_sent();
}

bool Agent::finished() const {
  if (stage_ == Stage::kAwaited) return false;
  for (const auto& rank : ranks_) {
    if (rank.running()) return false;
  }
  return true;
}

void Agent::poll_once() {
  bool may_read = may_read_ranks();
  PollSet polls;
  size_t control = polls.add(launcher_gone_ ? -1 : channel_.input(), POLLIN);
  polls.add(channel_.num_unsent() > 0 ? channel_.output() : -1, POLLOUT);
  polls.add(signals_.fd(), POLLIN);
  for (const auto& rank : ranks_) {
    polls.add(may_read ? rank.out() : -1, POLLIN);
    polls.add(may_read ? rank.err() : -1, POLLIN);
  }
  polls.add(stacks_ ? stacks_->fd() : -1, POLLIN);
  polls.add(status_.fd(), POLLIN);
  if (options_.echo) options_.echo->add_to(polls);
  polls.wait(next_wakeup());
  channel_.flush();
  if (options_.echo) options_.echo->poll_once();
  if (may_read) {
    read_outputs();
  } else {
    rank_watch_.on_unread(Deadline::Clock::now());
  }
  take_signals();
  if (polls.ready(control)) receive();
  send_stacks();
  send_status();
  watch_clocks();
}

Deadline Agent::next_wakeup() const {
  Deadline next = stage_ == Stage::kStopping ? kill_at_ : stuck_at_;
  if (launcher_gone_) return next;  // no launcher to send to or hear from
  if (stage_ == Stage::kRunning) next = std::min(next, rank_watch_.next_check());
  if (stacks_) next = std::min(next, stacks_->deadline());
  return std::min({next, next_progress_report_, heartbeats_.next()});
}

void Agent::watch_clocks() {
  kill_when_due();
  report_unkillable();
  if (launcher_gone_) return;
  if (heartbeats_.heartbeat_due()) send(Heartbeat{});
  if (heartbeats_.lost()) on_launcher_lost("no heartbeat from the launcher: ending this node's ranks");
  if (next_progress_report_.passed()) report_missing();
  if (stage_ == Stage::kRunning && rank_watch_.next_check().passed()) {
    if (auto changed = rank_watch_.check(Deadline::Clock::now()); !changed.empty())
      send(RankStates{std::move(changed)});
  }
}

// Until every rank has joined the store once.
void Agent::report_missing() {
  RanksMissing missing{master_port_ ? master_port_->ranks_not_joined() : std::vector<int>{}};
  bool none = missing.ranks.empty();
  if (!none || missing_reported_) send(missing);
  missing_reported_ = !none;
  next_progress_report_ = none ? Deadline::never() : Deadline::after(kProgressReportInterval);
}

void Agent::receive() {
  const bool there = channel_.receive();
  input_has_ended_ |= !there;
  if (there) heartbeats_.on_received();
  try {
    while (auto message = channel_.next()) handle(*message);
  } catch (const std::exception& error) {
    const DescribedError end = described(error);
    send(AgentFailed{to_int(end.code), end.text});
    failed_ = true;
    stop(kGraceWithoutLauncher);
  }
  if (!there && !launcher_gone_) on_launcher_lost(nullptr);
}

void Agent::on_launcher_lost(const char* how) {
  launcher_gone_ = true;
  if (how != nullptr) {
    log::error("{}", how);
    // The launcher may only be suspended, and should then learn why the ranks ended: pending messages are kept for
    // another silence limit.
    if (!finished()) send(AgentFailed{to_int(ExitCode::kUnavailable), how});
    flush_deadline_ = Deadline::after(kGraceWithoutLauncher + job_->silence_limit);
  }
  stop(kGraceWithoutLauncher);
}

void Agent::handle(const MessageToAgent& message) {
  const Overloaded handlers{
      [&](const JobDescription& job) { describe_job(job); },
      [&](const StartRanks& start) { start_ranks(start.master_port); },
      [&](const StopRanks& order) { stop(order.grace); },
      [&](const SignalRanks& order) {
        for (auto& rank : ranks_) rank.signal(order.signal);
      },
      [&](const StacksWanted& wanted) { collect_stacks(wanted); },
      [&](const StatusWanted& wanted) { read_status(wanted); },
      [&](const JobEnded& ended) { take_job_end(ended); },
      [](const Heartbeat&) {},  // receiving it was enough
  };
  std::visit(handlers, message);
}

void Agent::take_job_end(const JobEnded& ended) {
  job_ended_ = ended;
  if (!finished()) stop(kGraceWithoutLauncher);  // there will be no job, or it cannot continue
}

void Agent::take_signals() {
  bool child_ended = false;
  while (auto signal = signals_.take()) {
    if (*signal == SIGCHLD) {
      child_ended = true;
    } else if (is_externally_started() && !job_) {
      leave(*signal);
    } else if (is_externally_started()) {
      send(SignalTaken{*signal});
    } else if (*signal != SIGUSR1 && *signal != SIGUSR2) {
      on_termination_signal(*signal);
    }
  }
  if (child_ended) reap();
}

// Other nodes may take long to connect; their wait must not keep this node here.
void Agent::leave(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return;
  exit_signal_ = signal;
  launcher_gone_ = true;
  stop(0ms);
}

// A host shutdown, or a scheduler: the launcher ends all ranks, here too, with the grace that they need to save.
void Agent::on_termination_signal(int signal) {
  if (finished()) {
    exit_requested_ = true;  // nothing is left to wait for
    return;
  }
  if (launcher_gone_) return stop(kGraceWithoutLauncher);
  if (stage_ >= Stage::kStopping) return;
  send(AgentFailed{to_int(ExitCode::kRunAgain),
                   fmt::format("the agent received {}: stopping the ranks", spawn::signal_name(signal))});
}

void Agent::finish() {
  cleanup();
  error_files_.reset();
  job_files_.reset();
  // Everything must reach the launcher, however slow its terminal is; only the launcher's last message, end or silence
  // releases the agent.
  while (!launcher_gone_ && !job_ended_ && channel_.num_unsent() > 0 && channel_.flush()) poll_after_ranks();
  // Ranks on other nodes may still need the store; the launcher releases this agent when all are over.
  if (master_port_ && job_->num_nodes > 1) await_job_ended();
  master_port_.reset();
  flush_remaining();
}

// The messages for a silent launcher, the last one after the ranks' output, may be more than the pipe holds.
void Agent::flush_remaining() {
  while (!flush_deadline_.passed() && channel_.num_unsent() > 0 && channel_.flush()) {
    PollSet polls;
    polls.add(channel_.output(), POLLOUT);
    polls.add(signals_.fd(), POLLIN);
    polls.wait(flush_deadline_);
    while (auto signal = signals_.take()) {
      if (*signal != SIGCHLD && *signal != SIGUSR1 && *signal != SIGUSR2) return;
    }
  }
}

}  // namespace dslaunch::launch
