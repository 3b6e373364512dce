// What happens to one simulated job: its size, its options and its faults, from a seed. Plain data.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "simulation/clock.hpp"
#include "simulation/random.hpp"

namespace dslaunch::simulation {

struct Fault {
  enum class Kind {
    kRankExits,        // by itself, with `number` as its exit code
    kRankKilled,       // by signal `number`, of which dslaunch knows nothing
    kAgentKilled,      // SIGKILL
    kAgentTerminated,  // SIGTERM
    kLauncherKilled,   // SIGKILL
    kLauncherSignal,   // `number`: SIGINT, SIGTERM, SIGQUIT, SIGHUP
    kLinkBreaks,       // both ends of a connection see its end
    kHostDies,         // with all its processes; `length`: until it answers again
    kPartition,        // between the launcher's host and another, for `length`; `number`: 0 both ways, 1 to, 2 from it
    kLauncherStalls,   // gets no processor for `length`
    kAgentStalls,
  };
  Kind kind = Kind::kRankExits;
  Time when{0};
  uint64_t event = 0;  // not 0: right after that many events of the simulation, instead of `when`
  int victim = 0;      // a rank or a host
  int number = 0;
  Duration length{0};
};

struct Scenario {
  int num_hosts = 1;
  bool first_is_local = true;  // the first host is the launcher's own
  int ranks_per_host = 1;
  int num_steps = 5;
  Duration step_time{0};
  int max_restarts = 0;
  std::optional<int> min_nodes;
  std::optional<std::chrono::milliseconds> time_limit;
  std::chrono::milliseconds grace{5000}, silence_limit{8000};
  std::vector<Fault> faults;

  int world_size() const { return num_hosts * ranks_per_host; }
  std::string host(int number) const {
    return number == 0 && first_is_local ? "launcher" : "node" + std::to_string(number);
  }
};

Scenario make_scenario(Random& random);
std::string describe(const Scenario& scenario);
std::string describe(const Fault& fault);

}  // namespace dslaunch::simulation
