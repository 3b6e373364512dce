#include "launch/supervisor.hpp"

#include <poll.h>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/error_files.hpp"
#include "launch/job_story.hpp"
#include "launch/poll_set.hpp"
#include "spawn/job_sweep.hpp"
#include "spawn/local/local_link.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A rank that lost a peer notices within moments of the peer's end; the kernel reports that end no later.
constexpr auto kSettleTime = 500ms;
// For an agent, beyond the ranks' own grace: sweep up and say so.
constexpr auto kAgentSlack = 5000ms;

std::vector<RankRecord> empty_records(const LaunchPlan& plan) {
  std::vector<RankRecord> records;
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) {
      records.push_back({.rank = rank.rank, .local_rank = rank.local_rank, .host = node.host});
    }
  }
  return records;
}

}  // namespace

Supervisor::Supervisor(const LaunchPlan& plan, SupervisorOptions options)
    : plan_(plan),
      options_(std::move(options)),
      output_(plan, {.out_to_err = options_.json, .hide_out = options_.quiet && plan.kind == JobKind::kRun}),
      records_(empty_records(plan)) {}

int Supervisor::run() {
  if (plan_.timeout) time_limit_ = Deadline::after(*plan_.timeout);
  output_.open_logs();
  start_agents();
  while (state_ != JobState::kDone) turn();
  return finish();
}

void Supervisor::start_agents() {
  auto token = random_bytes(32);
  for (const auto& planned : plan_.nodes) {
    Node& node = nodes_.emplace_back();
    node.link = spawn::open_local_link(options_.agent_argv);
    spawn::LinkEnds ends = node.link->take_ends();
    node.channel = std::make_unique<Channel>(std::move(ends.from_agent), std::move(ends.to_agent));
    node.channel->send(describe(planned, token));
  }
}

JobDescription Supervisor::describe(const PlannedNode& node, std::vector<uint8_t> token) const {
  JobDescription job;
  job.job_id = plan_.job_id;
  job.kind = plan_.kind;
  job.token = std::move(token);
  job.master_addr = plan_.master_addr;
  job.master_port = plan_.master_port;
  job.world_size = plan_.world_size();
  job.num_nodes = static_cast<int>(plan_.nodes.size());
  job.node_rank = node.node_rank;
  job.host = node.host;
  job.rank_hosts = plan_.rank_hosts();
  job.cwd = plan_.cwd;
  job.env = plan_.env;
  for (const auto& rank : node.ranks) job.ranks.push_back({rank.rank, rank.local_rank, plan_.argv, rank.env});
  return job;
}

void Supervisor::turn() {
  // When all is being killed, a reader who does not read may not hold that up.
  if (state_ == JobState::kKilling && !output_.has_room()) output_.drop_pending();
  bool may_read = output_.has_room();
  PollSet polls;
  polls.add(signals_.fd(), POLLIN);
  std::vector<size_t> places;
  for (const auto& node : nodes_) {
    places.push_back(polls.add(may_read && !node.closed ? node.channel->input() : -1, POLLIN));
    polls.add(node.channel->num_unsent() > 0 ? node.channel->output() : -1, POLLOUT);
  }
  for (Terminal* terminal : {&output_.out(), &output_.err()}) {
    polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
  }
  polls.wait(next_wakeup());
  take_signals();
  output_.out().flush();
  output_.err().flush();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].channel->flush();
    if (polls.ready(places[i])) receive(i);
  }
  watch_clocks();
}

Deadline Supervisor::next_wakeup() const {
  Deadline next = time_limit_;
  for (const Deadline& other : {settled_, overdue_}) {
    if (other.when() < next.when()) next = other;
  }
  return next;
}

void Supervisor::receive(size_t node) {
  bool there = nodes_[node].channel->receive();
  try {
    while (auto message = nodes_[node].channel->next()) handle(node, *message);
  } catch (const Error& error) {
    output_.say(error.what());
    if (agent_error_ == 0) agent_error_ = to_int(error.code());
    there = false;
  }
  if (!there) close(node);
}

void Supervisor::handle(size_t node, const Message& message) {
  if (const auto* greeting = std::get_if<AgentHello>(&message)) hello(node, *greeting);
  if (const auto* ready = std::get_if<AgentReady>(&message)) {
    nodes_[node].ready = true;
    nodes_[node].master_port = ready->master_port;
    bool all = true;
    for (const auto& other : nodes_) all = all && other.ready;
    if (all) happen(JobEvent::kAgentsReady);
  }
  if (const auto* failed = std::get_if<AgentFailed>(&message)) {
    output_.say(failed->message);
    if (agent_error_ == 0) agent_error_ = failed->exit_code;
    happen(JobEvent::kAgentFailed);
  }
  if (const auto* started = std::get_if<RankStarted>(&message)) records_.at(started->rank).pid = started->pid;
  if (const auto* output = std::get_if<RankOutput>(&message)) output_.take(*output);
  if (const auto* ended = std::get_if<RankEnded>(&message)) rank_ended(*ended);
  if (std::holds_alternative<AgentDone>(message)) nodes_[node].done = true;
}

void Supervisor::hello(size_t node, const AgentHello& hello) {
  if (hello.version == kWireVersion) return;
  throw Error(ExitCode::kUnavailable,
              fmt::format("the dslaunch on {} (version {}) speaks another protocol version ({}) than this one ({}, {})",
                          plan_.nodes[node].host, hello.program_version, hello.version, DSL_VERSION, kWireVersion));
}

void Supervisor::rank_ended(const RankEnded& ended) {
  RankRecord& record = records_.at(ended.rank);
  record.cause = ended.cause;
  record.stopped_by_us = ended.stopped_by_us;
  record.order = num_ended_++;
  record.last_words = output_.last_words(ended.rank);
  output_.finish(ended.rank);
  if (ended.cause.success() || ended.stopped_by_us) return;
  bool lost_peer =
      ended.cause.kind == spawn::ExitCause::Kind::kExited && ended.cause.number == to_int(ExitCode::kPeerLost);
  happen(lost_peer ? JobEvent::kRankLostPeer : JobEvent::kRankFailed);
}

void Supervisor::close(size_t index) {
  Node& node = nodes_[index];
  if (node.closed) return;
  node.closed = true;
  node.channel->close_output();
  if (!node.done) {
    auto failure = node.link->failure();
    output_.say(fmt::format("the agent on {} is gone before its ranks have ended{}", plan_.nodes[index].host,
                            failure ? " (" + failure->text + ")" : ""));
    if (agent_error_ == 0) agent_error_ = to_int(failure ? failure->code : ExitCode::kUnavailable);
    happen(JobEvent::kAgentLost);
  }
  for (const auto& other : nodes_) {
    if (!other.closed) return;
  }
  happen(JobEvent::kAllDone);
}

void Supervisor::take_signals() {
  while (auto signal = signals_.take()) take_signal(*signal);
}

void Supervisor::take_signal(int signal) {
  // A worker takes SIGUSR1 from Slurm as "save and stop"; what a program makes of it is its own business.
  if (signal == SIGUSR2 || (signal == SIGUSR1 && plan_.kind == JobKind::kExec)) {
    send_to_all(SignalRanks{signal});
  } else if (signal == SIGINT) {
    bool again = state_ == JobState::kStopping;
    note_reason(StopReason::kInterrupt,
                again ? "ending all ranks at once" : "stopping the ranks (Ctrl-C again ends them at once)");
    happen(JobEvent::kInterrupt);
  } else {
    note_reason(StopReason::kTerminate, fmt::format("{}: stopping the ranks", spawn::signal_name(signal)));
    happen(JobEvent::kTerminate);
  }
}

// The first reason is the reason; a failure before it was one too.
void Supervisor::note_reason(StopReason reason, const std::string& text) {
  bool undisturbed = state_ == JobState::kStarting || state_ == JobState::kRunning || state_ == JobState::kSettling;
  if (undisturbed) reason_ = reason;
  if (undisturbed || reason == StopReason::kInterrupt) output_.say(text);
}

void Supervisor::watch_clocks() {
  if (time_limit_.passed()) {
    time_limit_ = Deadline::never();
    note_reason(StopReason::kTimeLimit,
                fmt::format("the time limit of {} s has passed: stopping the ranks", plan_.timeout->count() / 1000.0));
    happen(JobEvent::kTimeLimit);
  }
  if (settled_.passed()) {
    settled_ = Deadline::never();
    happen(JobEvent::kSettled);
  }
  if (overdue_.passed()) {
    overdue_ = Deadline::never();
    happen(JobEvent::kOverdue);
  }
}

void Supervisor::happen(JobEvent event) {
  JobStep step = next_step(state_, event);
  state_ = step.to;
  act(step.action);
}

void Supervisor::act(JobAction action) {
  switch (action) {
    case JobAction::kNone:
      break;
    case JobAction::kStartRanks:
      send_to_all(StartRanks{nodes_[0].master_port});
      break;
    case JobAction::kAwaitCulprit:
      settled_ = Deadline::after(kSettleTime);
      break;
    case JobAction::kStop:
      stop_ranks(plan_.grace);
      break;
    case JobAction::kKill:
      stop_ranks(0ms);
      break;
    case JobAction::kAbandon:
      abandon();
      break;
  }
}

void Supervisor::send_to_all(const Message& message) {
  for (auto& node : nodes_) node.channel->send(message);
}

void Supervisor::stop_ranks(std::chrono::milliseconds grace) {
  send_to_all(StopRanks{grace});
  overdue_ = Deadline::after(grace + kAgentSlack);
}

void Supervisor::abandon() {
  output_.say("the agents do not answer: ending them and everything that carries the job's id");
  for (auto& node : nodes_) {
    if (!node.closed) node.link->kill();
  }
}

int Supervisor::finish() {
  // Ranks die with their agent; an agent that was killed could not sweep up after them.
  bool all_done = true;
  for (auto& node : nodes_) {
    node.channel->close_output();
    node.link->wait(Deadline::never());
    all_done = all_done && node.done;
  }
  if (!all_done) {
    spawn::sweep_job({fmt::format("{}={}", spawn::kJobIdVariable, plan_.job_id)}, 0ms, false);
    remove_error_files(plan_.job_id);
  }

  JobOutcome outcome = decide_outcome(records_, plan_.kind, reason_, agent_error_);
  if (outcome.exit_code != 0) output_.err().write(tell_story(plan_, records_, outcome, reason_));
  if (options_.json) output_.print(story_json(plan_, records_, outcome, reason_));
  // A slow reader gets everything; one more Ctrl-C spares the rest.
  while (output_.num_pending() > 0) {
    PollSet polls;
    polls.add(signals_.fd(), POLLIN);
    for (Terminal* terminal : {&output_.out(), &output_.err()}) {
      polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
    }
    polls.wait(Deadline::never());
    output_.out().flush();
    output_.err().flush();
    if (auto signal = signals_.take(); signal && *signal != SIGUSR1 && *signal != SIGUSR2) break;
  }
  return outcome.exit_code;
}

}  // namespace dslaunch::launch
