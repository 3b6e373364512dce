#include "launch/supervisor/supervisor.hpp"

#include <poll.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/described_error.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/printable.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/supervisor/missing_ranks.hpp"
#include "launch/supervisor/node_join.hpp"
#include "ports/process_info.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Stage = NodeSession::Stage;

constexpr auto kProgressReportInterval = 10000ms;

// A hint for the user when sshd started a login shell but the agent never greeted.
std::string start_file_hint(const NodeSession& node) {
  if (node.has_come_to(Stage::kGreeted) || node.plan().reach != Reach::kSsh) return {};
  return fmt::format("; a shell start-up file on that host (such as ~/.bashrc) may exit or block: try ssh {} true",
                     node.host());
}

// The transport connected, then the peer closed it without an error.
spawn::LinkFailure unreported_failure(const NodeSession& node) {
  std::string noise = node.noise();
  for (char& c : noise) c = c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  if (noise.empty()) {
    if (!node.has_come_to(Stage::kGreeted)) {
      return {ExitCode::kUnavailable, "connection", "its shell exited without starting the agent", true};
    }
    return {ExitCode::kUnavailable, "connection", "lost connection to the agent while its ranks were running"};
  }
  return {ExitCode::kUnavailable, "start", "unexpected output instead of the agent's greeting: " + printable(noise)};
}

// What this machine can see of an agent that has been silent for too long.
std::string describe_silence(const NodeSession& node) {
  const auto seconds = node.heartbeats().silence() / 1s;
  if (node.plan().reach != Reach::kPipe) {
    return fmt::format("no heartbeat for {} s: the machine or the network is down", seconds);
  }
  const auto agent = ports::read_process_stat(static_cast<pid_t>(node.hello.pid));
  if (!agent) return fmt::format("its agent (process {}) has exited, last heartbeat {} s ago", node.hello.pid, seconds);
  const char* state = agent->state == 'T'   ? "it is stopped, e.g. by SIGSTOP"
                      : agent->state == 't' ? "it is stopped by a debugger"
                      : agent->state == 'D' ? "it waits for a disk or a driver"
                                            : "the machine may be overloaded";
  return fmt::format("no heartbeat from its agent (process {}) for {} s: {}", node.hello.pid, seconds, state);
}

// The failure of a link that has ended.
spawn::LinkFailure failure_of(NodeSession& node) {
  auto failure = node.link().failure().value_or(unreported_failure(node));
  if (failure.ended_there) failure.text += start_file_hint(node);
  return failure;
}

// If the launcher were suspended, the agents on other machines would take it for gone.
std::initializer_list<int> signals_to_take(const LaunchPlan& plan) {
  static constexpr std::initializer_list<int> kLocal{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  static constexpr std::initializer_list<int> kRemote{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
  return plan.has_remote_nodes() ? kRemote : kLocal;
}

OutputOptions output_options(const LaunchPlan& plan, const SupervisorOptions& options) {
  return {.files = &options.live->files(),
          .out_to_err = options.json,
          .hide_out = options.quiet && plan.kind == JobKind::kRun,
          .has_terminal = !plan.detach,
          .fold = plan.output.fold.value_or(false),
          .console = options.live->console()};
}

}  // namespace

std::vector<RankRecord> records_of(const LaunchPlan& plan) {
  std::vector<RankRecord> records;
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) {
      records.push_back({.rank = rank.rank, .local_rank = rank.local_rank, .host = node.host});
    }
  }
  return records;
}

Supervisor::Supervisor(LaunchPlan plan, SupervisorOptions options)
    : plan_(std::move(plan)),
      options_(std::move(options)),
      token_(options_.token.empty() ? random_bytes(32) : options_.token),
      signals_(signals_to_take(plan_)),
      output_(plan_, output_options(plan_, options_)),
      records_(records_of(plan_)),
      lifecycle_(plan_, options_.time_limit),
      next_progress_report_(Deadline::after(kProgressReportInterval)) {}

Supervisor::~Supervisor() = default;

JobReport Supervisor::run() {
  spawn::raise_descriptor_limit();  // a link and two logs for each host and rank
  try {
    output_.open_logs();
    open_links();
    while (lifecycle_.state() != JobState::kDone) poll_once();
  } catch (const std::exception& error) {
    leave_nothing_behind(failure_message(described(error)));
    throw;
  }
  await_links();
  return report();
}

void Supervisor::poll_once() {
  // While everything is killed, neither a slow reader nor a stalled file may delay that. The ranks' remaining output is
  // small enough to be kept for the files.
  const bool killing = lifecycle_.state() == JobState::kKilling;
  if (!lifecycle_.undisturbed() && !output_.readers_keep_up()) {
    output_.drop_slow_readers(killing);  // ranks that wait for readers cannot save
  }
  if (!lifecycle_.undisturbed()) watch_files();
  if (!options_.live->files().has_room()) options_.live->files().wake_when_idle();
  bool may_read = killing || output_.has_room();
  PollSet polls;
  polls.add(signals_.fd(), POLLIN);
  std::vector<size_t> places;
  for (const auto& node : nodes_) {
    places.push_back(polls.add(may_read && node.accepts_messages() ? node.input() : -1, POLLIN));
    polls.add(node.num_unsent() > 0 ? node.output() : -1, POLLOUT);
  }
  for (Terminal* terminal : {&output_.out(), &output_.err()}) {
    polls.add(terminal->num_pending() > 0 ? terminal->fd() : -1, POLLOUT);
  }
  options_.live->add_to(polls);
  polls.wait(next_wakeup());
  take_signals();
  for (const auto& stop : options_.live->serve(polls)) carry_out(lifecycle_.take_stop(stop, Deadline::Clock::now()));
  for (const auto& asked : options_.live->take_stack_asks()) ask_for_stacks(asked);
  report_errors();
  output_.poll_once();
  output_.out().flush();
  output_.err().flush();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].flush();
    if (!may_read) nodes_[i].pause_reading();
    if (polls.ready(places[i])) receive(i);
  }
  check_startup();
  answer_stacks_when_due();
  watch_clocks();
  watch_nodes();
}

// Files without room block the ranks, which then cannot save; files that make progress may take their time.
void Supervisor::watch_files() {
  const size_t pending = options_.live->files().num_pending_bytes();
  const bool has_room = options_.live->files().has_room();
  if (!has_room && files_progress_due_.passed()) output_.give_up_files();
  if (has_room || files_progress_due_.passed()) {
    files_progress_due_ = Deadline::never();
  } else if (files_progress_due_.is_never() || pending < files_pending_) {
    files_progress_due_ = Deadline::after(reader_patience());
  }
  files_pending_ = pending;
}

Deadline Supervisor::next_wakeup() const {
  Deadline next =
      std::min({lifecycle_.next_due(), prepared_, next_progress_report_, output_.next_turn(), files_progress_due_});
  if (!lifecycle_.undisturbed() && !output_.readers_keep_up()) next = std::min(next, output_.readers_patience());
  if (stack_request_) next = std::min(next, stack_request_->deadline());
  if (lifecycle_.state() == JobState::kRunning) next = std::min(next, Deadline::at(stalls_.next_due()));
  for (const auto& node : nodes_) {
    if (node.over()) continue;
    next = std::min(next, node.heartbeats().next());
    if (!node.has_come_to(Stage::kGreeted)) next = std::min(next, node.greeting_due);
  }
  return next;
}

void Supervisor::receive(size_t index) {
  NodeSession& node = nodes_[index];
  const bool there = node.receive();
  try {
    while (node.accepts_messages()) {
      auto message = node.next();
      if (!message) break;
      handle(node, *message);
    }
  } catch (const Error& error) {
    return close(node, spawn::LinkFailure{error.code(), "agent", error.what()});
  }
  if (!there) close(node);
}

void Supervisor::handle(NodeSession& node, const Message& message) {
  if (const auto* hello = std::get_if<AgentHello>(&message)) greet(node, *hello);
  if (const auto* ready = std::get_if<AgentReady>(&message)) agent_ready(node, *ready);
  if (const auto* failed = std::get_if<AgentFailed>(&message)) agent_failed(node, *failed);
  if (const auto* started = std::get_if<RankStarted>(&message)) rank_started(node, *started);
  if (const auto* output = std::get_if<RankOutput>(&message)) rank_wrote(node, *output);
  if (const auto* ended = std::get_if<RankEnded>(&message)) rank_ended(node, *ended);
  if (const auto* states = std::get_if<RankStates>(&message)) take_states(node, *states);
  if (const auto* stacks = std::get_if<RankStacks>(&message)) take_stacks(node, *stacks);
  if (const auto* stuck = std::get_if<ProcessStuck>(&message)) process_stuck(node, *stuck);
  if (const auto* taken = std::get_if<SignalTaken>(&message)) take_signal(taken->signal, &node);
  if (const auto* missing = std::get_if<RanksMissing>(&message)) missing_ = missing->ranks;
  if (std::holds_alternative<AgentDone>(message)) {
    // Otherwise the agent ended without being told to: it has left, and will be lost.
    if (node.has_come_to(Stage::kReady) || !lifecycle_.undisturbed()) node.come_to(Stage::kDone);
    end_if_all_over();
  }
}

void Supervisor::agent_failed(NodeSession& node, const AgentFailed& failed) {
  say_of(node, failed.message);
  const JobOrder order = lifecycle_.agent_failed(&node, failed.exit_code, Deadline::Clock::now());
  if (order.begins_end) {
    agent_failure_ = {node.host(), {static_cast<ExitCode>(failed.exit_code), "agent", failed.message}};
  }
  carry_out(order);
}

void Supervisor::say_of(const NodeSession& node, const std::string& what) {
  output_.say(plan_.nodes.size() == 1 ? what : fmt::format("{}: {}", node.host(), what));
}

// An agent may only report its own ranks; the peer may be any program that reached the port.
RankRecord& Supervisor::record_of(const NodeSession& node, int rank) {
  const auto& ranks = node.plan().ranks;  // their numbers are consecutive
  if (ranks.empty() || rank < ranks.front().rank || rank > ranks.back().rank) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("its agent reported rank {}, which does not run on this host", rank));
  }
  return records_[static_cast<size_t>(rank)];
}

void Supervisor::rank_started(const NodeSession& node, const RankStarted& started) {
  record_of(node, started.rank).pid = started.pid;
  options_.live->on_rank_started(started.rank, started.pid);
}

void Supervisor::rank_wrote(const NodeSession& node, const RankOutput& output) {
  record_of(node, output.rank);
  output_.take(output);
}

void Supervisor::rank_ended(const NodeSession& node, const RankEnded& ended) {
  RankRecord& record = record_of(node, ended.rank);
  if (record.cause) {
    throw Error(ExitCode::kUnavailable, fmt::format("its agent reported the end of rank {} twice", ended.rank));
  }
  options_.live->on_rank_ended(ended.rank, ended.cause, ended.stopped_by_us);
  record.cause = ended.cause;
  record.stopped_by_us = ended.stopped_by_us;
  record.order = num_ended_++;
  record.last_words = output_.last_words(ended.rank);
  record.has_log = output_.has_log(ended.rank);
  stalls_.rank_ended(ended.rank, Deadline::Clock::now());
  output_.finish(ended.rank);
  if (ended.cause.success() || ended.stopped_by_us) return;
  const bool follows = lost_peer(ended.cause, plan_.kind) || ended_as_by_sigterm(ended.cause);
  happen(follows ? JobEvent::kRankLostPeer : JobEvent::kRankFailed);
}

void Supervisor::take_states(const NodeSession& node, const RankStates& states) {
  for (const auto& activity : states.changed) {
    // A state that was in transit when the rank ended is outdated.
    if (!record_of(node, activity.rank).cause) stalls_.take(activity, Deadline::Clock::now());
  }
}

void Supervisor::process_stuck(const NodeSession& node, const ProcessStuck& stuck) {
  if (stuck.rank >= 0) record_of(node, stuck.rank);
  note_stuck(node.plan(), stuck.rank, stuck.process);
}

// Once per process, even if it is reported twice.
void Supervisor::note_stuck(const PlannedNode& node, int rank, const spawn::StuckProcess& process) {
  const auto is_known = [&](const auto& known) { return known.host == node.host && known.process.pid == process.pid; };
  if (std::any_of(stuck_.begin(), stuck_.end(), is_known)) return;
  stuck_.push_back({rank, node.host, node.reach == Reach::kPipe, process});
  options_.live->on_stuck(stuck_.back());
  if (rank < 0) return;
  RankRecord& record = records_[static_cast<size_t>(rank)];
  record.stuck = process;
  record.stopped_by_us = true;
  output_.finish(rank);
}

void Supervisor::close(NodeSession& node, const std::optional<spawn::LinkFailure>& misunderstanding) {
  if (node.closed()) return;
  node.close();
  if (misunderstanding) {
    node.link().kill();  // its messages cannot be used
    lose(node, *misunderstanding);
  } else if (!node.has_come_to(Stage::kDone)) {
    lose(node, failure_of(node));
  }
  end_if_all_over();
}

void Supervisor::lose(NodeSession& node, const spawn::LinkFailure& failure) {
  failures_.emplace_back(node.host(), failure);
  lifecycle_.blame_agent(to_int(failure.code));
  if (!described_) return check_startup();
  output_.say(fmt::format("lost {}: {}", node.host(), failure.text));
  happen(JobEvent::kAgentLost);
}

void Supervisor::end_if_all_over() {
  bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node.over(); });
  if (all) happen(JobEvent::kAllDone);
}

void Supervisor::take_signals() {
  while (auto signal = signals_.take()) take_signal(*signal);
}

void Supervisor::take_signal(int signal, const NodeSession* from) {
  if (signal == SIGTSTP) {
    output_.mention("a job on several machines cannot be suspended: --detach starts one in the background");
  } else if (!asks_for_end(signal, plan_.kind)) {
    if (user_signals_[signal].take(from)) send_to_all(SignalRanks{signal});
  } else if (const auto order = lifecycle_.take_signal(signal, from, Deadline::Clock::now())) {
    carry_out(*order);
    lifecycle_.carried_out(signal, from, Deadline::Clock::now());
  }
}

void Supervisor::report_errors() {
  for (const auto& trouble : options_.live->take_troubles()) output_.warn(trouble);
}

void Supervisor::watch_clocks() {
  while (const auto order = lifecycle_.due(Deadline::Clock::now())) carry_out(*order);
  if (next_progress_report_.passed()) {
    next_progress_report_ = Deadline::after(kProgressReportInterval);
    tell_who_is_missing();
  }
  if (lifecycle_.state() != JobState::kRunning) return;
  if (const auto line = stalls_.due(records_, plan_.job_id, Deadline::Clock::now())) output_.mention(*line);
}

// Gives up hosts that do not answer at all, and hosts that have fallen silent.
void Supervisor::watch_nodes() {
  const bool unprepared = prepared_.passed();
  if (unprepared) prepared_ = Deadline::never();
  for (auto& node : nodes_) {
    if (node.over()) continue;
    std::string why;
    if (node.greeting_overdue()) {
      why = fmt::format("its agent did not greet within {} s of the start of the connection (--connect_timeout){}",
                        static_cast<double>(plan_.reach.greeting_timeout.count()) / 1000, start_file_hint(node));
    } else if (unprepared && !node.has_come_to(Stage::kReady)) {
      why = fmt::format(
          "its agent was not ready within {} s: it checks the working directory, the worker, the model, the GPUs and "
          "the names of the other hosts, and one of these does not respond there",
          options_.preparation_time / 1s);
    } else if (node.lost()) {
      why = describe_silence(node);
    }
    if (why.empty()) continue;
    node.link().kill();
    node.close();
    lose(node, {ExitCode::kUnavailable, "connection", why});
    end_if_all_over();
  }
}

void Supervisor::tell_who_is_missing() {
  if (lifecycle_.state() == JobState::kStarting) {
    std::vector<std::string> waiting;
    for (const auto& node : nodes_) {
      if (node.has_come_to(Stage::kReady) || node.closed()) continue;
      waiting.push_back(describe_waiting(node.host(), node.has_come_to(Stage::kGreeted)));
    }
    if (!waiting.empty()) output_.mention(fmt::format("waiting for {}", fmt::join(waiting, ", ")));
  } else if (lifecycle_.state() == JobState::kRunning && !missing_.empty()) {
    output_.mention(describe_missing_ranks(missing_, records_));
  }
}

void Supervisor::carry_out(const JobOrder& order) {
  if (!order.say.empty()) output_.mention(order.say);
  if (order.begins_end) output_.set_patience(reader_patience());
  note_times(order);
  options_.live->on_state(lifecycle_.state());
  switch (order.action) {
    case JobAction::kNone:
    case JobAction::kAwaitRootCause:
      break;
    case JobAction::kStartRanks:
      prepared_ = Deadline::never();
      send_to_all(StartRanks{nodes_[0].master_port});
      break;
    case JobAction::kStop:
    case JobAction::kKill:
      stop_ranks(order.grace);
      break;
    case JobAction::kAbandon:
      abandon();
      break;
  }
}

// Records how long the ranks ran before the job's end began.
void Supervisor::note_times(const JobOrder& order) {
  const auto now = Deadline::Clock::now();
  if (order.action == JobAction::kStartRanks) ranks_started_ = now;
  if (order.begins_end && ranks_started_) {
    lived_ = std::chrono::duration_cast<std::chrono::milliseconds>(now - *ranks_started_);
  }
}

void Supervisor::send_to_all(const Message& message) {
  for (auto& node : nodes_) node.send(message);
}

void Supervisor::stop_ranks(std::chrono::milliseconds grace) {
  send_to_all(StopRanks{grace});
  // A link that is still being opened has no ranks behind it.
  for (auto& node : nodes_) {
    if (!node.has_come_to(Stage::kGreeted) && !node.closed()) {
      node.link().kill();
      node.close();
    }
  }
  end_if_all_over();
}

void Supervisor::abandon() {
  output_.say("the agents do not answer: ending them and all processes with the job's id");
  for (auto& node : nodes_) {
    if (!node.over()) node.link().kill();
  }
}

}  // namespace dslaunch::launch
