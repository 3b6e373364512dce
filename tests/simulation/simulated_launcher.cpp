// The launcher's program in a simulated world: dslaunch's restart loop and supervisors on a plan that is already made.
#include <csignal>

#include "launch/jobs/live_job.hpp"
#include "launch/supervisor/job_planner.hpp"
#include "launch/supervisor/launch_context.hpp"
#include "launch/supervisor/restart_loop.hpp"
#include "simulation/simulation.hpp"

namespace dslaunch::simulation {
namespace {

class Planner final : public launch::JobPlanner {
 public:
  explicit Planner(const launch::LaunchOptions& options) : options_(options) {}

  launch::DeviceUser device_user() const override { return {}; }
  launch::JobCommand command() const override { return {}; }
  launch::LaunchPlan plan(const launch::ResolvedHosts& hosts, int restart) override {
    launch::LaunchPlan plan;
    plan.job_id = "simulated";
    plan.kind = launch::JobKind::kRun;
    plan.cwd = "/";
    plan.argv = {"dsworker", "train"};
    plan.output.color = ColorChoice::kNever;
    plan.reach = options_.reach;
    plan.restart_count = restart;
    plan.max_restarts = options_.max_restarts;
    plan.grace = options_.grace;
    plan.timeout = options_.timeout;
    plan.nodes = launch::plan_nodes(hosts.allocation, launch::DeviceRule::kNone, {});
    for (size_t i = 0; i < plan.nodes.size(); ++i) plan.nodes[i].reach = hosts.reach[i];
    plan.mesh = comm::make_mesh(plan.world_size(), 1, 1);
    return plan;
  }
  void attempt_ended(const launch::JobReport& report) override { Simulation::current().attempt_ended(report); }

 private:
  const launch::LaunchOptions& options_;
};

launch::LaunchOptions options_of(const Scenario& scenario) {
  launch::LaunchOptions options;
  options.max_restarts = scenario.max_restarts;
  options.min_nodes = scenario.min_nodes;
  options.timeout = scenario.time_limit;
  options.grace = scenario.grace;
  options.reach.silence_limit = scenario.silence_limit;
  return options;
}

launch::ResolvedHosts hosts_of(const Scenario& scenario) {
  launch::ResolvedHosts hosts;
  hosts.device = "cpu";
  for (int host = 0; host < scenario.num_hosts; ++host) {
    hosts.allocation.hosts.push_back({scenario.host(host), {}, {}, hostfile::first_slots(scenario.ranks_per_host)});
    hosts.reach.push_back(host == 0 && scenario.first_is_local ? launch::Reach::kPipe : launch::Reach::kSsh);
  }
  return hosts;
}

}  // namespace

int run_launcher() {
  Simulation& simulation = Simulation::current();
  const launch::LaunchOptions options = options_of(simulation.scenario);
  launch::LaunchContext context{options, std::nullopt, hosts_of(simulation.scenario), {}};
  Planner planner(options);
  const launch::LaunchPlan plan = planner.plan(context.hosts, 0);
  launch::LiveJob live(plan, {});
  launch::SignalInbox signals{SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  launch::RestartLoop loop(plan, context, planner, live, signals);
  const int code = loop.run();
  simulation.launcher_returned(code);
  return code;
}

}  // namespace dslaunch::simulation
