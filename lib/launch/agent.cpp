#include "launch/agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "launch/poll_set.hpp"
#include "spawn/job_sweep.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A launcher that is gone cannot wait for a checkpoint: what does not end by itself in this time is killed.
constexpr auto kGraceWithoutLauncher = 700ms;
// For what the ranks left behind, once they have ended themselves.
constexpr auto kSweepPatience = 2000ms;
// More output than this waiting for the launcher: the ranks wait too.
constexpr size_t kMostUnsentBytes = 4U << 20;
constexpr size_t kReadBytesPerTurn = 256U << 10;

int usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

spawn::JobMarks marks_of(const JobDescription& job) {
  // Two nodes of a job may be one machine: an agent ends only what its own node started.
  return {fmt::format("{}={}", spawn::kJobIdVariable, job.job_id), fmt::format("GROUP_RANK={}", job.node_rank)};
}

}  // namespace

Agent::Agent(Channel channel) : channel_(std::move(channel)) {
  spawn::become_subreaper();
}

int Agent::run() {
  channel_.send(AgentHello{kWireVersion, DSL_VERSION, ::getpid()});
  while (!finished()) turn();
  finish();
  return failed_ ? 1 : 0;
}

bool Agent::finished() const {
  bool over = failed_ || kill_at_ || (started_ && job_);
  if (!over) return false;
  for (const auto& rank : ranks_) {
    if (rank.running()) return false;
  }
  return true;
}

void Agent::turn() {
  bool may_read = channel_.num_unsent() < kMostUnsentBytes;
  PollSet polls;
  size_t control = polls.add(launcher_gone_ ? -1 : channel_.input(), POLLIN);
  polls.add(channel_.num_unsent() > 0 ? channel_.output() : -1, POLLOUT);
  polls.add(signals_.fd(), POLLIN);
  for (const auto& rank : ranks_) {
    polls.add(may_read ? rank.out() : -1, POLLIN);
    polls.add(may_read ? rank.err() : -1, POLLIN);
  }
  polls.wait(next_wakeup());
  channel_.flush();
  if (may_read) read_outputs();
  take_signals();
  if (polls.ready(control)) receive();
  kill_when_due();
}

Deadline Agent::next_wakeup() const {
  return kill_at_ && !killed_ ? *kill_at_ : Deadline::never();
}

void Agent::receive() {
  bool there = channel_.receive();
  try {
    while (auto message = channel_.next()) handle(*message);
  } catch (const Error& error) {
    channel_.send(AgentFailed{to_int(error.code()), error.what()});
    failed_ = true;
    stop(kGraceWithoutLauncher);
  }
  if (there || launcher_gone_) return;
  launcher_gone_ = true;
  stop(kGraceWithoutLauncher);
}

void Agent::handle(const Message& message) {
  if (const auto* job = std::get_if<JobDescription>(&message)) describe_job(*job);
  if (const auto* start = std::get_if<StartRanks>(&message)) start_ranks(start->master_port);
  if (const auto* stop_now = std::get_if<StopRanks>(&message)) stop(stop_now->grace);
  if (const auto* signal = std::get_if<SignalRanks>(&message)) {
    for (auto& rank : ranks_) rank.signal(signal->signal);
  }
}

void Agent::describe_job(const JobDescription& job) {
  DSL_CHECK(!job_, "a second job description for one agent");
  job_ = job;
  if (job.kind == JobKind::kExec) error_files_ = std::make_unique<ErrorFiles>(job.job_id);
  if (MasterPort::needed(job)) master_port_ = std::make_unique<MasterPort>(job);
  channel_.send(AgentReady{master_port_ ? master_port_->number() : uint16_t{0}});
}

void Agent::start_ranks(uint16_t master_port) {
  DSL_CHECK(job_ && !started_, "ranks are started once, after the job's description");
  started_ = true;
  if (kill_at_) return;
  if (master_port_) master_port_->release_to_program();
  NodeFacts node{.num_cores = usable_cores(), .master_port = master_port, .error_file = {}};
  ranks_.reserve(job_->ranks.size());
  for (const auto& rank : job_->ranks) {
    if (!start_rank(rank, node)) return;  // the launcher hears of it and stops the others
  }
}

bool Agent::start_rank(const RankJob& rank, const NodeFacts& node) {
  NodeFacts facts = node;
  if (error_files_) facts.error_file = error_files_->path_of(rank.rank);
  auto started = spawn::start_process({rank.argv, rank_environment(*job_, rank, facts), job_->cwd});
  if (auto* cause = std::get_if<spawn::ExitCause>(&started)) {
    channel_.send(RankEnded{rank.rank, std::move(*cause), false});
    return false;
  }
  ranks_.emplace_back(rank.rank, std::move(std::get<spawn::Process>(started)));
  channel_.send(RankStarted{rank.rank, ranks_.back().pid()});
  return true;
}

// All ranks at once, under one deadline that later calls can only bring nearer.
void Agent::stop(std::chrono::milliseconds grace) {
  Deadline deadline = Deadline::after(grace);
  if (!kill_at_) {
    kill_at_ = deadline;
    if (grace > 0ms) {
      for (auto& rank : ranks_) rank.stop(SIGTERM);
    }
  } else if (deadline.when() < kill_at_->when()) {
    kill_at_ = deadline;
  }
  kill_when_due();
}

void Agent::kill_when_due() {
  if (!kill_at_ || killed_ || !kill_at_->passed()) return;
  killed_ = true;
  for (auto& rank : ranks_) rank.stop(SIGKILL);
}

void Agent::take_signals() {
  bool child_ended = false;
  while (auto signal = signals_.take()) {
    if (*signal == SIGCHLD) {
      child_ended = true;
    } else {
      stop(kGraceWithoutLauncher);
    }
  }
  if (child_ended) reap();
}

// Ranks, and orphans of theirs that the kernel gave to us.
void Agent::reap() {
  while (auto ended = spawn::reap_any()) {
    for (auto& rank : ranks_) {
      if (rank.running() && rank.pid() == ended->pid) end_rank(rank, ended->cause);
    }
  }
}

void Agent::end_rank(RankProcess& rank, spawn::ExitCause cause) {
  // Its last words first.
  rank.read_output([&](RankOutput output) { channel_.send(output); }, 4 * kReadBytesPerTurn);
  rank.mark_ended();
  if (!cause.success()) cause.hint = oom_.explain(cause);
  if (!cause.success() && cause.hint.empty() && error_files_) cause.hint = error_files_->message_of(rank.rank());
  channel_.send(RankEnded{rank.rank(), std::move(cause), rank.told_to_stop()});
}

void Agent::read_outputs() {
  for (auto& rank : ranks_) {
    rank.read_output([&](RankOutput output) { channel_.send(output); }, kReadBytesPerTurn);
  }
}

void Agent::sweep() {
  auto patience = kill_at_ ? std::min<std::chrono::milliseconds>(kSweepPatience, kill_at_->left()) : kSweepPatience;
  if (killed_ || launcher_gone_) patience = 0ms;
  size_t swept = job_ ? spawn::sweep_job(marks_of(*job_), patience, true) : 0;
  read_outputs();
  channel_.send(AgentDone{static_cast<int64_t>(swept)});
}

void Agent::finish() {
  sweep();
  master_port_.reset();
  error_files_.reset();
  // Everything must reach the launcher, however slow its terminal is; only its own end sets us free.
  while (!launcher_gone_ && channel_.num_unsent() > 0 && channel_.flush()) {
    PollSet polls;
    size_t control = polls.add(channel_.input(), POLLIN);
    polls.add(channel_.output(), POLLOUT);
    polls.wait(Deadline::never());
    if (polls.ready(control)) launcher_gone_ = !channel_.receive();
  }
}

int run_agent_on_standard_streams() {
  UniqueFd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  UniqueFd output(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!input.valid() || !output.valid()) throw SystemError("fcntl", "the agent's standard streams");
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  return Agent(Channel(std::move(input), std::move(output))).run();
}

}  // namespace dslaunch::launch
