// Processes of a simulated host, instead of spawn/process.cpp, process_cleanup.cpp and stuck_process.cpp.
#include <algorithm>
#include <csignal>
#include <utility>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "simulation/simulation.hpp"
#include "spawn/process.hpp"
#include "spawn/process_cleanup.hpp"
#include "spawn/stuck_process.hpp"

namespace dslaunch::spawn {
namespace {

using namespace std::chrono_literals;
using simulation::PlantedBug;
using simulation::Simulation;
using simulation::World;

bool has_all(const simulation::Process& process, const JobTags& tags) {
  return std::all_of(tags.begin(), tags.end(), [&](const std::string& tag) {
    const size_t sign = tag.find('=');
    const auto found = process.env.find(tag.substr(0, sign));
    return found != process.env.end() && found->second == tag.substr(sign + 1);
  });
}

std::vector<pid_t> processes_to_end(const JobTags& tags, bool children_too, const std::set<pid_t>& exempt) {
  World& world = World::current();
  const simulation::Process& self = world.self();
  std::vector<pid_t> found;
  for (const auto& [pid, process] : world.processes()) {
    if (!process->is_alive || process->host != self.host || pid == self.pid || exempt.contains(pid)) continue;
    const bool is_child = children_too && process->parent == self.pid;
    if (is_child || (!tags.empty() && has_all(*process, tags))) found.push_back(pid);
  }
  return found;
}

void tell(const std::vector<pid_t>& pids, int signal) {
  World& world = World::current();
  for (const pid_t pid : pids) {
    world.find(pid)->told_to_end = true;
    world.signal(pid, signal);
  }
}

ExitCause seen_by_agent(const simulation::Process& ended) {
  if (!ended.is_rank || ended.told_to_end || ended.cause.success()) return ended.cause;
  const PlantedBug bug = Simulation::current().bug;
  if (bug == PlantedBug::kFailuresAreSuccesses) return {};
  if (bug != PlantedBug::kCausesAreSwapped) return ended.cause;
  const bool lost_peer = ended.cause.kind == ExitCause::Kind::kExited && ended.cause.number == 71;
  return {ExitCause::Kind::kExited, lost_peer ? 1 : 71, false, {}};
}

}  // namespace

void raise_descriptor_limit() {}
void become_subreaper() {}

std::variant<Process, ExitCause> start_process(const ProcessSpec& spec) {
  World& world = World::current();
  auto& agent = world.self();
  auto& rank = world.start(
      agent.host, fmt::format("rank {} of attempt {}", spec.env.at("RANK"), spec.env.at("TORCHELASTIC_RESTART_COUNT")),
      agent.pid, nullptr);
  rank.env = spec.env;
  rank.is_rank = true;
  rank.rank = std::stoi(spec.env.at("RANK"));
  rank.attempt = std::stoi(spec.env.at("TORCHELASTIC_RESTART_COUNT"));
  rank.dies_with_parent = spec.die_with_thread;
  Process process;
  process.pid = rank.pid;
  UniqueFd* ends[] = {&process.out, &process.err};
  for (UniqueFd* end : ends) {
    auto stream = world.make_stream(agent.host, agent.host);
    *end = UniqueFd(world.open_reader(stream, agent));
    world.open_writer(stream, rank);
  }
  Simulation::current().rank_starts(rank);
  simulation::start_rank_script(rank);
  if (Simulation::current().bug == PlantedBug::kRanksStartTwice && !spec.env.contains("SECOND")) {
    ProcessSpec again = spec;
    again.env["SECOND"] = "1";
    start_process(again);
  }
  return process;
}

std::optional<EndedChild> reap_any() {
  World& world = World::current();
  auto& children = world.self().ended_children;
  if (children.empty()) return std::nullopt;
  const pid_t pid = children.front();
  children.pop_front();
  return EndedChild{pid, seen_by_agent(*world.find(pid)), {}};
}

void signal_group(const Process& process, int signal) {
  if (signal == SIGTERM || signal == SIGKILL) World::current().find(process.pid)->told_to_end = true;
  World::current().signal(process.pid, signal);
}

std::vector<pid_t> processes_with(const JobTags& tags) {
  return processes_to_end(tags, false, {});
}

CleanupResult cleanup_job(const JobTags& tags, std::chrono::milliseconds timeout, bool children_too,
                          const std::set<pid_t>& exempt) {
  CleanupResult result;
  World& world = World::current();
  const PlantedBug bug = Simulation::current().bug;
  if (bug == PlantedBug::kCleanupDoesNothing) return result;
  auto left = processes_to_end(tags, children_too, exempt);
  result.num_signalled = left.size();
  if (timeout > 0ms) tell(left, SIGTERM);
  for (const auto due = Deadline::after(timeout); !left.empty() && !due.passed();) {
    world.sleep(20ms);
    left = processes_to_end(tags, children_too, exempt);
  }
  for (const auto due = Deadline::after(5s); !left.empty() && !due.passed();) {
    tell(left, SIGKILL);
    world.sleep(20ms);
    left = processes_to_end(tags, children_too, exempt);
  }
  for (const pid_t pid : left)
    result.stuck.push_back({.pid = pid, .start_ticks = 0, .state = 'D', .wait_channel = "simulated"});
  if (children_too) world.self().ended_children.clear();
  return result;
}

std::optional<StuckProcess> inspect_stuck(pid_t pid) {
  if (!World::current().find(pid)->is_alive) return std::nullopt;
  return StuckProcess{.pid = pid, .start_ticks = 0, .state = 'D', .wait_channel = "simulated"};
}

std::string describe(const StuckProcess& stuck) {
  return fmt::format("process {} is stuck in the simulated kernel", stuck.pid);
}

}  // namespace dslaunch::spawn
