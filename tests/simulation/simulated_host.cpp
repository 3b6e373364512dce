// What a launcher or agent finds on its host in a simulated world, instead of the sources that ask the real one: its
// signals, threads, files, addresses and devices, and the port that serves the store.
#include <algorithm>
#include <csignal>
#include <utility>

#include "base/format.hpp"
#include "launch/agent/descriptor_check.hpp"
#include "launch/agent/master_port.hpp"
#include "launch/agent/preflight.hpp"
#include "launch/channel/heartbeats.hpp"
#include "launch/event_loop/file_thread.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/nodes/push.hpp"
#include "launch/plan/node_binding.hpp"
#include "launch/process/agent_tag.hpp"
#include "launch/process/programs.hpp"
#include "launch/records/private_dir.hpp"
#include "launch/supervisor/restart_signal_guard.hpp"
#include "launch/terminal/terminal.hpp"
#include "rendezvous/own_address.hpp"
#include "simulation/simulation.hpp"
#include "spawn/exit_diagnostics.hpp"

namespace dslaunch {

using namespace std::chrono_literals;
using simulation::Simulation;
using simulation::World;

namespace rendezvous {

std::string own_address_towards(const std::string& /*peer*/, int /*num_nodes*/) {
  return "10.0.0.1";
}
std::vector<std::string> interface_addresses() {
  return {"10.0.0.1"};
}
std::string first_interface_address() {
  return "10.0.0.1";
}

}  // namespace rendezvous

namespace spawn {

OomWatch::OomWatch() = default;
std::string OomWatch::explain(const std::string& /*proc_cgroup*/) {
  return {};
}
KernelLog::KernelLog() = default;
std::string KernelLog::about(pid_t /*pid*/) {
  return {};
}

}  // namespace spawn

namespace launch {

// ---- threads: work on files is done at once

struct FileThread::Shared {
  std::vector<std::string> errors;
};
FileThread::FileThread() : shared_(std::make_shared<Shared>()) {}
FileThread::~FileThread() = default;
void FileThread::submit(size_t /*num_bytes*/, Work work) {
  if (std::string error = work(); !error.empty()) shared_->errors.push_back(std::move(error));
}
bool FileThread::idle() const {
  return true;
}
size_t FileThread::num_pending_bytes() const {
  return 0;
}
std::vector<std::string> FileThread::take_errors() {
  return std::exchange(shared_->errors, {});
}
bool FileThread::wait(Deadline /*deadline*/) {
  return true;
}
int FileThread::fd() const {
  return -1;
}
void FileThread::wake_when_idle() {}

Heartbeats::Heartbeats(ChannelToLauncher& channel, std::chrono::milliseconds interval) {
  if (interval > 0ms) World::current().self().while_asleep = [&channel] { channel.send(Heartbeat{}); };
}

// Signals between two attempts wait for the next attempt's supervisor.
struct RestartSignalGuard::Shared {};
RestartSignalGuard::RestartSignalGuard(SignalInbox& /*signals*/,
                                       std::function<std::optional<int>(int signal)> /*end*/) {}
RestartSignalGuard::~RestartSignalGuard() = default;

// ---- signals

SignalInbox::SignalInbox(std::initializer_list<int> /*signals*/)
    : taken_{}, before_{}, fd_(World::current().open_signals()) {}
SignalInbox::~SignalInbox() = default;
void SignalInbox::ignore_from_now_on() {}
std::optional<int> SignalInbox::take() {
  auto& pending = World::current().self().pending_signals;
  if (pending.empty()) return std::nullopt;
  auto next = std::find(pending.begin(), pending.end(), SIGTERM);
  if (next == pending.end()) next = pending.begin();
  const int signal = *next;
  pending.erase(next);
  return signal;
}

// ---- the terminal

bool have_one_reader(int /*a*/, int /*b*/) {
  return true;
}
Terminal::Terminal(int fd, FileThread* thread) : thread_(thread), is_terminal_(false), fd_(fd) {}
void Terminal::write(std::string_view bytes) {
  if (!World::current().self().is_alive) return;
  Simulation::current().terminal += bytes;
  World::current().note("the terminal shows: " + std::string(bytes.substr(0, bytes.find_last_not_of('\n') + 1)));
}
void Terminal::flush() {}
void Terminal::give_up() {}

// ---- an agent's preparation

void check_descriptors(const JobDescription& /*job*/) {}
void check_preflight(const Preflight& /*preflight*/, const std::string& /*worker*/,
                     const std::map<std::string, std::string>& /*env*/) {}
void check_working_dir(const JobDescription& /*job*/) {}

std::vector<RankBinding> bind_ranks(const JobDescription& job) {
  World& world = World::current();
  world.sleep(world.random.one_in(10) ? world.random.between(1s, 20s) : world.random.between(1ms, 300ms));
  world.self().while_asleep = nullptr;
  return std::vector<RankBinding>(job.ranks.size());
}

PrivateDir::PrivateDir(const std::string& job_id) : path_("/simulated/" + job_id) {}
PrivateDir::~PrivateDir() = default;
void PrivateDir::write(const std::string& /*name*/, const std::string& /*content*/) const {}
void remove_abandoned_private_dirs() {}
void remove_private_dirs(const std::string& /*job_id*/) {}

const std::string& own_program() {
  static const std::string kProgram = "/simulated/dslaunch";
  return kProgram;
}
std::string worker_program() {
  return "/simulated/dsworker";
}
std::string own_agent_tag() {
  return fmt::format("{}:0:0", World::current().self().pid);
}
std::optional<ports::ProcessIdentity> agent_of(const ports::ProcessInfo& /*process*/) {
  return std::nullopt;
}
JobLife job_life(const ports::ProcessInfo& /*process*/) {
  return JobLife::kNone;
}
void push_programs(LaunchPlan& /*plan*/, const std::string& /*own_program*/) {}

// ---- the store

MasterPort::MasterPort(const JobDescription& job, UniqueFd /*listener*/, bool /*serve_torch_store*/)
    : world_size_(job.world_size), ranks_join_(job.kind == JobKind::kRun), number_(29500) {
  auto store = std::make_unique<simulation::SimulatedStore>();
  store->state = std::make_unique<rendezvous::StoreState>(job.world_size, job.rank_hosts);
  store->host = World::current().self().host;
  store->agent = World::current().self().pid;
  Simulation::current().stores[job.restart_count] = std::move(store);
}

std::vector<int> MasterPort::ranks_not_joined() const {
  std::vector<int> missing;
  for (const auto& [attempt, store] : Simulation::current().stores) {
    if (store->agent != World::current().self().pid) continue;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (!store->connected.contains(rank)) missing.push_back(rank);
    }
  }
  return missing;
}

bool MasterPort::needed(const JobDescription& job) {
  return job.node_rank == 0 && job.world_size > 1;
}

}  // namespace launch
}  // namespace dslaunch
