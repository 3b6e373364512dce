#include "launch/agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/log.hpp"
#include "launch/devices.hpp"
#include "launch/doctor/agent_mark.hpp"
#include "launch/poll_set.hpp"
#include "launch/preflight.hpp"
#include "launch/programs.hpp"
#include "rendezvous/own_address.hpp"
#include "rendezvous/stream_socket.hpp"
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
// Between two words about ranks that have not joined the store.
constexpr auto kNewsInterval = 5000ms;

spawn::JobMarks marks_of(const JobDescription& job) {
  // Two nodes of a job may be one machine: an agent ends only what its own node started.
  return {fmt::format("{}={}", spawn::kJobIdVariable, job.job_id), fmt::format("GROUP_RANK={}", job.node_rank)};
}

// The machine's own address towards the launcher, as sshd tells it, is one that other hosts are likely to reach too.
std::string address_of_this_host() {
  const char* connection = std::getenv("SSH_CONNECTION");  // client address and port, server address and port
  std::istringstream words(connection == nullptr ? "" : connection);
  std::string client, client_port, server;
  if (words >> client >> client_port >> server && !rendezvous::is_loopback_address(server)) {
    return server;
  }
  return rendezvous::first_interface_address();
}

}  // namespace

Agent::Agent(Channel channel, AgentOptions options) : options_(std::move(options)), channel_(std::move(channel)) {
  spawn::become_subreaper();
  spawn::raise_descriptor_limit();  // two pipes and a connection to the store for each rank
}

bool Agent::run() {
  AgentHello hello = options_.hello;
  hello.program_version = DSL_VERSION;
  hello.pid = ::getpid();
  hello.host_name = host_name();
  hello.address = address_of_this_host();
  say(hello);
  while (!finished()) turn();
  finish();
  return !failed_;
}

std::optional<JobEnded> Agent::await_last_word() {
  while (auto message = channel_.next()) handle(*message);
  while (!last_word_ && !launcher_gone_) {
    PollSet polls;
    polls.add(channel_.input(), POLLIN);
    polls.add(channel_.num_unsent() > 0 ? channel_.output() : -1, POLLOUT);
    size_t signal = polls.add(signals_.fd(), POLLIN);
    if (options_.echo) options_.echo->add_to(polls);
    polls.wait(next_wakeup());
    if (polls.ready(signal)) {
      if (!came_by_itself()) break;  // whoever wants us gone has nothing to wait for any more
      take_signals();
    }
    channel_.flush();
    if (options_.echo) options_.echo->turn();
    receive();
    watch_clocks();
  }
  return last_word_;
}

bool Agent::may_read_ranks() const {
  return channel_.num_unsent() < kMostUnsentBytes && (!options_.echo || options_.echo->has_room());
}

void Agent::say(const Message& message) {
  channel_.send(message);
  pulse_.spoke();
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
  bool may_read = may_read_ranks();
  PollSet polls;
  size_t control = polls.add(launcher_gone_ ? -1 : channel_.input(), POLLIN);
  polls.add(channel_.num_unsent() > 0 ? channel_.output() : -1, POLLOUT);
  polls.add(signals_.fd(), POLLIN);
  for (const auto& rank : ranks_) {
    polls.add(may_read ? rank.out() : -1, POLLIN);
    polls.add(may_read ? rank.err() : -1, POLLIN);
  }
  if (options_.echo) options_.echo->add_to(polls);
  polls.wait(next_wakeup());
  channel_.flush();
  if (options_.echo) options_.echo->turn();
  if (may_read) read_outputs();
  take_signals();
  if (polls.ready(control)) receive();
  watch_clocks();
}

Deadline Agent::next_wakeup() const {
  Deadline next = kill_at_ && !killed_ ? *kill_at_ : Deadline::never();
  for (const Deadline& other : {next_news_, launcher_gone_ ? Deadline::never() : pulse_.next()}) {
    if (other.when() < next.when()) next = other;
  }
  return next;
}

void Agent::watch_clocks() {
  kill_when_due();
  if (launcher_gone_) return;
  if (pulse_.due_to_speak()) say(Heartbeat{});
  if (pulse_.lost()) lose_launcher("no sign of life from the launcher: ending the ranks here");
  if (next_news_.passed()) tell_who_is_missing();
}

// Until every rank has joined the store once.
void Agent::tell_who_is_missing() {
  RanksMissing missing{master_port_ ? master_port_->ranks_not_joined() : std::vector<int>{}};
  bool none = missing.ranks.empty();
  if (!none || news_told_) say(missing);
  news_told_ = !none;
  next_news_ = none ? Deadline::never() : Deadline::after(kNewsInterval);
}

void Agent::receive() {
  bool there = channel_.receive();
  if (there) pulse_.heard();
  try {
    while (auto message = channel_.next()) handle(*message);
  } catch (const Error& error) {
    say(AgentFailed{to_int(error.code()), error.what()});
    failed_ = true;
    stop(kGraceWithoutLauncher);
  }
  if (!there && !launcher_gone_ && !last_word_) lose_launcher(nullptr);
}

void Agent::lose_launcher(const char* how) {
  launcher_gone_ = true;
  if (how != nullptr) log::error("{}", how);
  stop(kGraceWithoutLauncher);
}

void Agent::handle(const Message& message) {
  if (const auto* job = std::get_if<JobDescription>(&message)) describe_job(*job);
  if (const auto* start = std::get_if<StartRanks>(&message)) start_ranks(start->master_port);
  if (const auto* stop_now = std::get_if<StopRanks>(&message)) stop(stop_now->grace);
  if (const auto* signal = std::get_if<SignalRanks>(&message)) {
    for (auto& rank : ranks_) rank.signal(signal->signal);
  }
  if (const auto* ended = std::get_if<JobEnded>(&message)) last_word_ = *ended;
}

void Agent::describe_job(const JobDescription& job) {
  DSL_CHECK(!job_, "a second job description for one agent");
  job_ = job;
  pulse_.set_silence_limit(job.silence_limit);
  prepare_job();
  say(AgentReady{master_port_ ? master_port_->number() : uint16_t{0}});
}

// What can keep this node from doing its part shows here, before a rank has started anywhere.
void Agent::prepare_job() {
  JobDescription& job = *job_;
  check_folder(job);
  complete_environment(job);
  bindings_ = bind_ranks(job);
  job_files_ = std::make_unique<JobFiles>(job.job_id, job.files);
  for (auto& rank : job.ranks) {
    // The worker that belongs to this very program, wherever that was put on this host.
    if (job.kind == JobKind::kRun) rank.argv[0] = worker_program();
    rank.argv = job_files_->localize(std::move(rank.argv));
  }
  if (!job.ranks.empty()) check_preflight(job.preflight, {job.ranks[0].argv, job.env, job.cwd});
  if (job.kind == JobKind::kExec) error_files_ = std::make_unique<ErrorFiles>(job.job_id);
  if (MasterPort::needed(job)) {
    master_port_ = std::make_unique<MasterPort>(job, std::move(options_.listener), MasterPort::serves_torch_store(job));
  }
}

void Agent::start_ranks(uint16_t master_port) {
  DSL_CHECK(job_ && !started_, "ranks are started once, after the job's description");
  started_ = true;
  if (kill_at_) return;
  next_news_ = Deadline::after(kNewsInterval);
  ranks_.reserve(job_->ranks.size());
  for (size_t i = 0; i < job_->ranks.size(); ++i) {
    if (!start_rank(job_->ranks[i], bindings_[i], master_port))
      return;  // the launcher hears of it and stops the others
  }
}

bool Agent::start_rank(const RankJob& rank, const RankBinding& binding, uint16_t master_port) {
  NodeFacts facts{
      .num_threads = binding.num_threads, .master_port = master_port, .error_file = {}, .agent_mark = own_agent_mark()};
  if (error_files_) facts.error_file = error_files_->path_of(rank.rank);
  auto started = spawn::start_process({.argv = rank.argv,
                                       .env = rank_environment(*job_, rank, facts),
                                       .cwd = job_->cwd,
                                       .cpus = binding.cpus,
                                       .memory_node = binding.memory_node});
  if (auto* cause = std::get_if<spawn::ExitCause>(&started)) {
    say(RankEnded{rank.rank, std::move(*cause), false});
    return false;
  }
  ranks_.emplace_back(rank.rank, std::move(std::get<spawn::Process>(started)));
  say(RankStarted{rank.rank, ranks_.back().pid()});
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
    } else if (came_by_itself() && !job_) {
      leave(*signal);
    } else if (came_by_itself()) {
      say(SignalTaken{*signal});
    } else if (*signal != SIGUSR1 && *signal != SIGUSR2) {
      stop(kGraceWithoutLauncher);
    }
  }
  if (child_ended) reap();
}

// Other nodes may be long in coming; nobody is to wait for them with us.
void Agent::leave(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return;
  left_on_ = signal;
  launcher_gone_ = true;
  stop(0ms);
}

// Ranks, and orphans of theirs that the kernel gave to us.
void Agent::reap() {
  while (auto ended = spawn::reap_any()) {
    for (auto& rank : ranks_) {
      if (rank.running() && rank.pid() == ended->pid) end_rank(rank, *ended);
    }
  }
}

void Agent::end_rank(RankProcess& rank, const spawn::EndedChild& ended) {
  spawn::ExitCause cause = ended.cause;
  // Its last words first.
  rank.read_output([&](const RankOutput& output) { carry(output); }, 4 * kReadBytesPerTurn);
  rank.mark_ended();
  if (!cause.success()) cause.hint = ends_.explain(cause, ended.pid, ended.cgroups);
  if (!cause.success() && cause.hint.empty() && error_files_) cause.hint = error_files_->message_of(rank.rank());
  say(RankEnded{rank.rank(), std::move(cause), rank.told_to_stop()});
}

void Agent::read_outputs() {
  for (auto& rank : ranks_) {
    rank.read_output([&](const RankOutput& output) { carry(output); }, kReadBytesPerTurn);
  }
}

void Agent::carry(const RankOutput& output) {
  say(output);
  if (options_.echo) options_.echo->write(output.stream, output.bytes);
}

void Agent::sweep() {
  auto patience = kill_at_ ? std::min<std::chrono::milliseconds>(kSweepPatience, kill_at_->left()) : kSweepPatience;
  if (killed_ || launcher_gone_) patience = 0ms;
  size_t swept = job_ ? spawn::sweep_job(marks_of(*job_), patience, true) : 0;
  read_outputs();
  say(AgentDone{static_cast<int64_t>(swept)});
}

void Agent::finish() {
  sweep();
  error_files_.reset();
  job_files_.reset();
  // Everything must reach the launcher, however slow its terminal is; only its own end sets us free.
  while (!launcher_gone_ && channel_.num_unsent() > 0 && channel_.flush()) {
    PollSet polls;
    size_t control = polls.add(channel_.input(), POLLIN);
    polls.add(channel_.output(), POLLOUT);
    polls.wait(Deadline::never());
    if (polls.ready(control)) launcher_gone_ = !channel_.receive();
  }
  // Ranks elsewhere may still need the store; the launcher lets go of us when all are over.
  if (master_port_ && job_->num_nodes > 1) await_last_word();
  master_port_.reset();
}

int run_agent_on_standard_streams(const AgentCommand& command) {
  UniqueFd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  UniqueFd output(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!input.valid() || !output.valid()) throw SystemError("fcntl", "the agent's standard streams");
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  if (command.listener >= 0) ::fcntl(command.listener, F_SETFD, FD_CLOEXEC);
  if (command.say_mark && ::write(output.get(), kAgentMark.data(), kAgentMark.size()) < 0) {
    throw SystemError("write", "to the launcher");
  }
  AgentOptions options{.hello = {}, .listener = UniqueFd(command.listener)};
  if (command.tell_devices) options.hello.devices = look_for_devices().visible;
  Agent agent(Channel(std::move(input), std::move(output)), std::move(options));
  bool good = agent.run();
  agent.ignore_signals();
  return good ? 0 : 1;
}

}  // namespace dslaunch::launch
