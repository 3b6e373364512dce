// One simulated job: a launcher, agents on several hosts and their ranks, in a world with faults, all from a seed. The
// launcher's and the agents' code is that of dslaunch; the ranks are scripts. One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/job_report.hpp"
#include "rendezvous/store_state.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world.hpp"

namespace dslaunch::simulation {

// Errors that tests put between the programs and their world, to see that an invariant finds them.
enum class PlantedBug {
  kNone,
  kCleanupDoesNothing,    // what a lost agent left behind stays
  kFailuresAreSuccesses,  // a rank that failed is reaped as one that succeeded
  kCausesAreSwapped,      // ... as one that lost a peer, and one that lost a peer as one that failed
  kTimersDoNotExpire,     // of the launcher
  kRanksStartTwice,
  kLateHostsAreIgnored,  // as the supervisor did: a host that is lost while the job ends is never the root cause
};

// The store of an attempt, at the agent of node rank 0: its state is the real one, its connections are packets.
struct SimulatedStore {
  std::unique_ptr<rendezvous::StoreState> state;
  std::string host;
  pid_t agent = 0;
  std::map<int, pid_t> connected;  // rank -> process
};

// How a rank really ended, whatever the job's report says.
struct RankEnd {
  int attempt = 0, rank = 0;
  std::string host;
  Time when{0};
  spawn::ExitCause cause;
  bool was_told = false;  // it had been told to end
};

class Simulation {
 public:
  Simulation(uint64_t seed, PlantedBug bug, bool records);
  ~Simulation();
  static Simulation& current();

  // The first violation of an invariant; empty: none.
  std::string run();

  World world;
  Scenario scenario;
  const PlantedBug bug;

  // What carriers and scripts record.
  std::map<int, std::unique_ptr<SimulatedStore>> stores;  // by attempt
  std::map<pid_t, std::shared_ptr<void>> scripts;         // of ranks
  std::vector<RankEnd> rank_ends;
  std::string terminal;  // what the launcher has written
  std::vector<pid_t> agents;
  // Of every connection to another host, for faults: makes its ends see an error, the agent's end only if `both`.
  struct Breaker {
    std::string host;
    std::function<void(bool both)> run;
  };
  std::vector<Breaker> connections;
  pid_t launcher = 0;

  // Invariants, checked when these events happen.
  void rank_starts(const Process& rank);
  void attempt_ended(const launch::JobReport& report);
  void launcher_returned(int exit_code);

  void carry_out(const Fault& fault);

 private:
  void disturb(const std::string& host, Duration length);
  void meet_agents(const Fault& fault, int signal);
  void break_connections(const std::string& host, bool both);
  void kill_host(const Fault& fault);
  void cut_off(const Fault& fault);
  bool is_disturbed(const std::string& host) const { return disturbed_hosts_.contains(host); }
  void check_records(const launch::JobReport& report);
  void check_all_gone(const char* when, bool everywhere);
  void check_first_failure(const launch::JobReport& report);

  int num_attempts_ended_ = 0;
  std::optional<int> exit_code_, reported_code_;
  std::set<pid_t> reported_stuck_;
  std::map<std::string, Time> disturbed_hosts_;  // whose agent or connection a fault meets in this attempt, until when
  bool was_killed_ = false, was_asked_to_end_ = false;
};

// The launcher's program (simulated_launcher.cpp), a connection's agent (simulated_links.cpp), a rank's script
// (rank_script.cpp).
int run_launcher();
void start_rank_script(Process& rank);

}  // namespace dslaunch::simulation
