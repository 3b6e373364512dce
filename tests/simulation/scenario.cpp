#include "simulation/scenario.hpp"

#include <array>
#include <csignal>

#include "base/format.hpp"

namespace dslaunch::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

constexpr std::array kNames{"a rank exits",
                            "a rank is killed",
                            "an agent is killed",
                            "an agent is told to end",
                            "the launcher is killed",
                            "a signal to the launcher",
                            "a connection breaks",
                            "a host dies",
                            "a partition",
                            "the launcher stalls",
                            "an agent stalls"};
// A job without faults takes about as many.
constexpr int64_t kNumEvents = 600;

Fault make_fault(const Scenario& scenario, Random& random) {
  Fault fault;
  // Ranks that fail are the usual case.
  fault.kind = random.one_in(3) ? Kind::kRankExits : static_cast<Kind>(random.between(0, kNames.size() - 1));
  if (random.one_in(2)) fault.event = static_cast<uint64_t>(random.between(1, kNumEvents));
  fault.when = random.up_to(3s + 2 * scenario.num_steps * scenario.step_time);
  switch (fault.kind) {
    case Kind::kRankExits:
      fault.victim = static_cast<int>(random.between(0, scenario.world_size() - 1));
      fault.number = static_cast<int>(random.between(1, 3));
      break;
    case Kind::kRankKilled: {
      constexpr std::array kSignals{SIGKILL, SIGSEGV, SIGABRT, SIGTERM};
      fault.victim = static_cast<int>(random.between(0, scenario.world_size() - 1));
      fault.number = kSignals.at(static_cast<size_t>(random.between(0, 3)));
      break;
    }
    case Kind::kLauncherSignal: {
      constexpr std::array kSignals{SIGINT, SIGTERM, SIGQUIT, SIGHUP};
      fault.number = kSignals.at(static_cast<size_t>(random.between(0, 3)));
      break;
    }
    default:
      // The launcher's own host has no network to it, and is as good as dead with the launcher.
      fault.victim =
          static_cast<int>(random.between(scenario.num_hosts > 1 && !random.one_in(4) ? 1 : 0, scenario.num_hosts - 1));
      fault.number = static_cast<int>(random.between(0, 2));
      fault.length = random.up_to(60s);
      break;
  }
  return fault;
}

}  // namespace

Scenario make_scenario(Random& random) {
  Scenario scenario;
  scenario.num_hosts = static_cast<int>(random.between(1, 3));
  scenario.first_is_local = !random.one_in(3);
  scenario.ranks_per_host = static_cast<int>(random.between(1, 2));
  scenario.num_steps = static_cast<int>(random.between(1, 6));
  scenario.step_time = random.between(Duration(100ms), Duration(2s));
  scenario.max_restarts = static_cast<int>(random.between(0, 2));
  if (random.one_in(3)) scenario.min_nodes = 1;
  if (random.one_in(10)) scenario.time_limit = std::chrono::milliseconds(random.between(500, 20000));
  const int64_t num_faults = random.between(0, 4);
  for (int64_t i = 0; i < num_faults; ++i) scenario.faults.push_back(make_fault(scenario, random));
  return scenario;
}

std::string describe(const Fault& fault) {
  return fmt::format("{} (victim {}, number {}, {} ms)", kNames.at(static_cast<size_t>(fault.kind)), fault.victim,
                     fault.number, fault.length / 1ms);
}

std::string describe(const Scenario& scenario) {
  return fmt::format(
      "{} hosts{}, {} ranks on each, {} steps of {} ms, {} restarts{}, {}", scenario.num_hosts,
      scenario.first_is_local ? ", the first one local" : "", scenario.ranks_per_host, scenario.num_steps,
      scenario.step_time / 1ms, scenario.max_restarts, scenario.min_nodes ? " on fewer hosts if needed" : "",
      scenario.time_limit ? fmt::format("{} ms at most", scenario.time_limit->count()) : "no time limit");
}

}  // namespace dslaunch::simulation
