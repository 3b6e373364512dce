// The agent's ranks: from the job's description until no process of them is left on this node.
#include <algorithm>
#include <csignal>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/agent/agent.hpp"
#include "launch/agent/descriptor_check.hpp"
#include "launch/agent/preflight.hpp"
#include "launch/channel/heartbeats.hpp"
#include "launch/plan/node_binding.hpp"
#include "launch/plan/rank_environment.hpp"
#include "launch/process/agent_tag.hpp"
#include "launch/process/programs.hpp"
#include "launch/records/private_dir.hpp"
#include "spawn/process_cleanup.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// For processes that the ranks left behind, after the ranks themselves have ended.
constexpr auto kCleanupTimeout = 2000ms;
// From SIGKILL to the end of a process, which may have to release much memory or a device. Shorter than the launcher's
// wait.
constexpr auto kKillTime = 4000ms, kLookAgain = 200ms;
constexpr size_t kReadBytesPerTurn = 256U << 10;

// An agent ends only processes that its node has started: two nodes of a job may be one machine.
spawn::JobTags tags_of(const JobDescription& job, int attempt) {
  return {fmt::format("{}={}", spawn::kJobIdVariable, job.job_id), fmt::format("GROUP_RANK={}", job.node_rank),
          fmt::format("TORCHELASTIC_RESTART_COUNT={}", attempt)};
}

// Spares later attempts: an agent that stalled and was given up as lost may resume while the next attempt's ranks
// already run. Processes of earlier attempts have had their grace period.
spawn::CleanupResult cleanup_attempts(const JobDescription& job, std::chrono::milliseconds timeout,
                                      const std::set<pid_t>& stuck) {
  spawn::CleanupResult cleanup =
      spawn::cleanup_job(tags_of(job, job.restart_count), timeout, /*children_too=*/true, stuck);
  for (int attempt = 0; attempt < job.restart_count; ++attempt) {
    const spawn::CleanupResult earlier = spawn::cleanup_job(tags_of(job, attempt), 0ms, /*children_too=*/false, stuck);
    cleanup.num_signalled += earlier.num_signalled;
    cleanup.stuck.insert(cleanup.stuck.end(), earlier.stuck.begin(), earlier.stuck.end());
  }
  return cleanup;
}

// A host that the launcher could not reach when an attempt ended may still run its ranks: its agent learns of the end
// when the network is back, which may be later than this agent learns of the next attempt.
void end_earlier_attempts(const JobDescription& job) {
  for (int attempt = 0; attempt < job.restart_count; ++attempt) {
    // Without the node's rank: after a restart on fewer hosts it is another one.
    spawn::cleanup_job({fmt::format("{}={}", spawn::kJobIdVariable, job.job_id),
                        fmt::format("TORCHELASTIC_RESTART_COUNT={}", attempt)},
                       0ms, /*children_too=*/false);
  }
}

}  // namespace

void Agent::describe_job(const JobDescription& job) {
  DSL_CHECK(!job_, "a second job description for one agent");
  job_ = job;
  heartbeats_.begin(job.silence_limit, job.heartbeat_interval);
  {
    // A slow file server, drivers and resolvers take their time, and meanwhile the loop does not run.
    const Heartbeats meanwhile(channel_, heartbeats_.send_interval());
    prepare_job();
  }
  send(AgentReady{master_port_ ? master_port_->number() : uint16_t{0}});
}

// Anything that keeps this node from doing its part fails here, before a rank has started anywhere.
void Agent::prepare_job() {
  JobDescription& job = *job_;
  end_earlier_attempts(job);
  check_descriptors(job);
  check_working_dir(job);
  complete_environment(job);
  bindings_ = bind_ranks(job);
  remove_abandoned_private_dirs();  // left by agents that were killed on this host
  job_files_ = std::make_unique<JobFiles>(job.job_id, job.files);
  for (auto& rank : job.ranks) {
    // The worker that belongs to this dslaunch, wherever that was installed on this host.
    if (job.kind == JobKind::kRun) rank.argv[0] = worker_program();
    rank.argv = job_files_->localize(std::move(rank.argv));
  }
  if (!job.ranks.empty()) check_preflight(job.preflight, job.ranks[0].argv.at(0), job.env);
  if (job.kind == JobKind::kExec) error_files_ = std::make_unique<ErrorFiles>(job.job_id);
  if (MasterPort::needed(job)) {
    master_port_ = std::make_unique<MasterPort>(job, std::move(options_.listener), uses_torch_store(job));
  }
}

void Agent::start_ranks(uint16_t master_port) {
  DSL_CHECK(job_ && stage_ != Stage::kRunning, "ranks are started once, after the job description");
  if (stage_ != Stage::kAwaited || input_has_ended_) return;  // an agent that stalled may read both at once
  stage_ = Stage::kRunning;
  next_progress_report_ = Deadline::after(kProgressReportInterval);
  ranks_.reserve(job_->ranks.size());
  for (size_t i = 0; i < job_->ranks.size(); ++i) {
    if (!start_rank(job_->ranks[i], bindings_[i], master_port))
      return;  // the launcher gets the message and stops the others
  }
}

bool Agent::start_rank(const RankJob& rank, const RankBinding& binding, uint16_t master_port) {
  NodeFacts facts{
      .num_threads = binding.num_threads, .master_port = master_port, .error_file = {}, .agent_tag = own_agent_tag()};
  if (error_files_) facts.error_file = error_files_->path_of(rank.rank);
  const auto page = job_->kind == JobKind::kRun ? std::make_shared<const StatusPage>() : nullptr;
  if (page) facts.status_fd = page->fd();
  auto started = spawn::start_process({.argv = rank.argv,
                                       .env = rank_environment(*job_, rank, facts),
                                       .cwd = job_->cwd,
                                       .inherited = facts.status_fd,
                                       .cpus = binding.cpus,
                                       .memory_node = binding.memory_node});
  if (auto* cause = std::get_if<spawn::ExitCause>(&started)) {
    send(RankEnded{rank.rank, std::move(*cause), false});
    return false;
  }
  ranks_.emplace_back(rank.rank, std::move(std::get<spawn::Process>(started)), page);
  // The ranks of `run` watch each other (comm/watchdog.hpp), and a single rank waits for no peer.
  if (job_->kind == JobKind::kExec && job_->world_size > 1) {
    rank_watch_.add(rank.rank, ranks_.back().pid(), Deadline::Clock::now());
  }
  send(RankStarted{rank.rank, ranks_.back().pid()});
  return true;
}

// All ranks at once, under one deadline that later calls can only shorten.
void Agent::stop(std::chrono::milliseconds grace) {
  kill_at_ = std::min(kill_at_, Deadline::after(grace));
  if (stage_ < Stage::kStopping) {
    stage_ = Stage::kStopping;
    if (grace > 0ms) {
      for (auto& rank : ranks_) rank.stop(SIGTERM);
    }
  }
  kill_when_due();
}

void Agent::kill_when_due() {
  if (stage_ != Stage::kStopping || !kill_at_.passed()) return;
  stage_ = Stage::kKilled;
  for (auto& rank : ranks_) rank.stop(SIGKILL);
  stuck_at_ = Deadline::after(kKillTime);
}

// No signal ends a process that waits inside the kernel; the job must not wait with it.
void Agent::report_unkillable() {
  if (!stuck_at_.passed()) return;
  stuck_at_ = Deadline::never();
  for (auto& rank : ranks_) {
    if (!rank.running()) continue;
    auto stuck = spawn::inspect_stuck(rank.pid());
    if (!stuck) {  // about to end
      stuck_at_ = Deadline::after(kLookAgain);
      continue;
    }
    rank.read_output([&](const RankOutput& output) { forward_output(output); }, 4 * kReadBytesPerTurn);
    rank.mark_ended();
    stuck_.insert(rank.pid());
    send(ProcessStuck{rank.rank(), std::move(*stuck)});
  }
}

// Reaps ranks, and their orphans that the kernel reparented to this agent.
void Agent::reap() {
  while (auto ended = spawn::reap_any()) {
    if (stacks_) stacks_->on_reaped(ended->pid);
    for (auto& rank : ranks_) {
      if (rank.running() && rank.pid() == ended->pid) end_rank(rank, *ended);
    }
  }
}

void Agent::end_rank(RankProcess& rank, const spawn::EndedChild& ended) {
  spawn::ExitCause cause = ended.cause;
  // Its remaining output first.
  rank.read_output([&](const RankOutput& output) { forward_output(output); }, 4 * kReadBytesPerTurn);
  rank.mark_ended();
  rank_watch_.remove(rank.rank());
  if (!cause.success()) cause.hint = ends_.explain(cause, ended.pid, ended.cgroups);
  if (!cause.success() && cause.hint.empty() && error_files_) cause.hint = error_files_->message_of(rank.rank());
  send(RankEnded{rank.rank(), std::move(cause), rank.stop_sent()});
}

void Agent::read_outputs() {
  for (auto& rank : ranks_) {
    rank.read_output([&](const RankOutput& output) { forward_output(output); }, kReadBytesPerTurn);
  }
}

void Agent::forward_output(const RankOutput& output) {
  send(output);
  rank_watch_.on_output(output.rank, Deadline::Clock::now());
  if (options_.echo) options_.echo->write(output.stream, output.bytes);
}

void Agent::collect_stacks(const StacksWanted& wanted) {
  std::map<int, pid_t> pids;
  for (const auto& rank : ranks_) {
    const bool is_wanted = std::find(wanted.ranks.begin(), wanted.ranks.end(), rank.rank()) != wanted.ranks.end();
    if (is_wanted && rank.running()) pids[rank.rank()] = rank.pid();
  }
  stacks_.reset();  // ends the previous request
  stacks_.emplace(wanted.request, std::move(pids));
}

void Agent::send_stacks() {
  if (!stacks_) return;
  if (const auto answer = stacks_->poll_once()) {
    send(*answer);
    stacks_.reset();
  }
}

void Agent::read_status(const StatusWanted& wanted) {
  std::vector<WatchedRank> running;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankProcess& rank = ranks_[i];
    if (!rank.running()) continue;
    const RankJob& job = job_->ranks[i];
    const auto visible = job.env.find("CUDA_VISIBLE_DEVICES");
    running.push_back({rank.rank(), rank.pid(), rank.page(),
                       visible == job.env.end() ? "" : device_of_rank(visible->second, job.local_rank)});
  }
  status_.request(wanted, std::move(running));
}

void Agent::send_status() {
  if (auto answer = status_.take()) send(*answer);
}

void Agent::cleanup() {
  auto timeout = std::min<std::chrono::milliseconds>(kCleanupTimeout, kill_at_.left());
  if (stage_ == Stage::kKilled || launcher_gone_) timeout = 0ms;
  const spawn::CleanupResult cleanup = job_ ? cleanup_attempts(*job_, timeout, stuck_) : spawn::CleanupResult();
  read_outputs();
  for (const auto& stuck : cleanup.stuck) send(ProcessStuck{-1, stuck});
  send(AgentDone{static_cast<int64_t>(cleanup.num_signalled)});
}

}  // namespace dslaunch::launch
