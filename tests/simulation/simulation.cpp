#include "simulation/simulation.hpp"

#include <algorithm>
#include <csignal>

#include "base/format.hpp"

namespace dslaunch::simulation {
namespace {

using namespace std::chrono_literals;

// A job that has not ended by then does not end.
constexpr Time kMaxJobTime = 3600s;
// After the launcher's end: for agents that do not know of it, which wait for its heartbeats.
constexpr Duration kMaxAftermath = 180s;

Simulation* g_simulation = nullptr;

}  // namespace

Simulation::Simulation(uint64_t seed, PlantedBug the_bug, bool records)
    : world(seed), scenario(make_scenario(world.random)), bug(the_bug) {
  g_simulation = this;
  world.records = records;
}

Simulation::~Simulation() {
  world.shut_down();
  g_simulation = nullptr;
}

Simulation& Simulation::current() {
  return *g_simulation;
}

std::string Simulation::run() {
  world.note(describe(scenario));
  for (const Fault& fault : scenario.faults) {
    if (fault.event == 0) world.clock.at(fault.when, [this, &fault] { carry_out(fault); });
  }
  Process& process = world.start("launcher", "the launcher", 0, run_launcher);
  launcher = process.pid;
  process.never_times_out = bug == PlantedBug::kTimersDoNotExpire;
  Time end = kMaxJobTime;
  process.on_end = [&] { end = world.clock.now() + kMaxAftermath; };
  for (uint64_t event = 1; world.violation().empty() && world.clock.step(end); ++event) {
    for (const Fault& fault : scenario.faults) {
      if (fault.event == event) carry_out(fault);
    }
  }
  if (!world.violation().empty()) return world.violation();
  if (process.is_alive) return "the job does not end";
  if (!was_killed_ && !exit_code_) return "the launcher has ended without an exit code";
  check_all_gone("long after the job's end", /*everywhere=*/true);
  return world.violation();
}

void Simulation::carry_out(const Fault& fault) {
  using Kind = Fault::Kind;
  const Process& the_launcher = *world.find(launcher);
  if (!the_launcher.is_alive && fault.kind != Kind::kRankExits && fault.kind != Kind::kRankKilled) return;
  world.note("FAULT: " + describe(fault));
  switch (fault.kind) {
    case Kind::kRankExits:
    case Kind::kRankKilled:
      for (auto& [pid, process] : world.processes()) {
        if (!process->is_alive || !process->is_rank || process->rank != fault.victim) continue;
        if (fault.kind == Kind::kRankKilled) {
          world.signal(pid, fault.number);
        } else {
          world.end(*process, {spawn::ExitCause::Kind::kExited, fault.number, false, {}});
        }
      }
      break;
    case Kind::kAgentKilled:
      meet_agents(fault, SIGKILL);
      break;
    case Kind::kAgentTerminated:
      meet_agents(fault, SIGTERM);
      break;
    case Kind::kAgentStalls:
      meet_agents(fault, 0);
      break;
    case Kind::kLauncherKilled:
      was_killed_ = true;
      world.signal(launcher, SIGKILL);
      break;
    case Kind::kLauncherSignal:
      was_asked_to_end_ = true;
      world.signal(launcher, fault.number);
      break;
    case Kind::kLauncherStalls:
      // Its agents may take it for gone.
      for (int host = 0; host < scenario.num_hosts; ++host) disturb(scenario.host(host), fault.length);
      world.stall(*world.find(launcher), fault.length);
      break;
    case Kind::kLinkBreaks:
      disturb(scenario.host(fault.victim), Duration(0));
      break_connections(scenario.host(fault.victim), /*both=*/true);
      break;
    case Kind::kHostDies:
      kill_host(fault);
      break;
    case Kind::kPartition:
      cut_off(fault);
      break;
  }
}

void Simulation::disturb(const std::string& host, Duration length) {
  Time& until = disturbed_hosts_[host];
  until = std::max(until, world.clock.now() + length);
}

// `signal` 0: they stall.
void Simulation::meet_agents(const Fault& fault, int signal) {
  for (const pid_t pid : agents) {
    Process& agent = *world.find(pid);
    if (!agent.is_alive || agent.host != scenario.host(fault.victim)) continue;
    disturb(agent.host, fault.length);
    signal == 0 ? world.stall(agent, fault.length) : world.signal(pid, signal);
  }
}

void Simulation::break_connections(const std::string& host, bool both) {
  for (const Breaker& connection : connections) {
    if (connection.host == host) connection.run(both);
  }
}

void Simulation::kill_host(const Fault& fault) {
  const std::string host = scenario.host(fault.victim);
  if (host == "launcher") return;
  for (auto& [pid, process] : world.processes()) {
    if (process->host == host) world.end(*process, {spawn::ExitCause::Kind::kSignaled, SIGKILL, false, {}});
  }
  disturb(host, fault.length);
  std::vector<std::string> others{"launcher"};
  for (int number = 0; number < scenario.num_hosts; ++number) others.push_back(scenario.host(number));
  for (const auto& other : others) {
    world.network.cut(host, other);
    world.network.cut(other, host);
  }
  world.clock.after(fault.length, [this, host, others] {
    world.note(host + " answers again");
    for (const auto& other : others) {
      world.network.mend(host, other);
      world.network.mend(other, host);
    }
  });
}

void Simulation::cut_off(const Fault& fault) {
  const std::string host = scenario.host(fault.victim);
  if (host == "launcher") return;
  disturb(host, fault.length);
  if (fault.number != 2) world.network.cut("launcher", host);
  if (fault.number != 1) world.network.cut(host, "launcher");
  // The launcher's machine gives an unanswered connection up when its settings say so.
  const Time patience = world.clock.now() + world.random.between(Duration(4s), Duration(40s));
  if (patience < world.clock.now() + fault.length) {
    world.clock.at(patience, [this, host] { break_connections(host, /*both=*/false); });
  }
  world.clock.after(fault.length, [this, host] {
    world.note("the partition of " + host + " is over");
    world.network.mend("launcher", host);
    world.network.mend(host, "launcher");
  });
}

}  // namespace dslaunch::simulation
