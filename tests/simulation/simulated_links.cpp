// Links to agents in a simulated world, instead of launch/nodes/node_link.cpp: a pipe to an agent on the launcher's own
// host, a connection to one on another.
#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include "base/format.hpp"
#include "launch/agent/agent.hpp"
#include "launch/nodes/cleanup_nodes.hpp"
#include "launch/nodes/node_link.hpp"
#include "ports/process_info.hpp"
#include "simulation/simulation.hpp"

namespace dslaunch::simulation {
namespace {

using namespace std::chrono_literals;

// What `dslaunch agent` does with its standard streams.
int run_agent(int input, int output, bool writes_preamble) {
  if (writes_preamble) World::current().write(output, launch::kAgentPreamble);
  launch::Agent agent(launch::ChannelToLauncher(UniqueFd(input), UniqueFd(output)), launch::AgentOptions{});
  return agent.run() ? 0 : 1;
}

struct Connection : std::enable_shared_from_this<Connection> {
  World& world = World::current();
  std::string from, host;
  bool is_pipe = false, writes_preamble = false;
  std::string cleanup_job;  // not an agent: ends what this job has left on the host
  std::shared_ptr<Stream> to_agent, from_agent;
  Time connect_due{0};
  pid_t agent = 0;
  bool is_over = false;
  std::optional<spawn::LinkFailure> failure;

  void connect() {
    if (is_over) return;
    if (!world.network.is_cut(from, host) && !world.network.is_cut(host, from)) return start_agent();
    if (world.clock.now() >= connect_due) return fail("connect", "timed out");
    world.clock.after(500ms, [self = shared_from_this()] { self->connect(); });
  }

  // The transport itself has failed, on the launcher's side.
  void fail(const char* phase, const std::string& text) {
    if (is_over) return;
    is_over = true;
    failure = spawn::LinkFailure{.phase = phase, .text = text};
    world.note(fmt::format("the link to {} fails: {}", host, text));
    from_agent->break_off();
    to_agent->close_writer();
  }

  void break_off(bool both) {
    fail("connection", both ? "connection reset by peer" : "no answer");
    if (both) world.network.send(from, host, [stream = to_agent] { stream->break_off(); });
  }

  void start_agent() {
    auto program = std::make_shared<std::function<int()>>();
    Process& process = world.start(host, (cleanup_job.empty() ? "the agent of " : "the cleanup of ") + host, 0,
                                   [program] { return (*program)(); });
    agent = process.pid;
    const int input = world.open_reader(to_agent, process), output = world.open_writer(from_agent, process);
    if (cleanup_job.empty()) {
      *program = [input, output, mark = writes_preamble] { return run_agent(input, output, mark); };
      Simulation::current().agents.push_back(agent);
    } else {
      *program = [job = cleanup_job] {
        launch::cleanup_this_host(job);
        return 0;
      };
    }
    process.on_end = [self = shared_from_this(), &process] { self->agent_ended(process); };
  }

  void agent_ended(const Process& process) {
    if (is_pipe) {
      failure = spawn::LinkFailure{.phase = "connection",
                                   .text = "the agent of this machine: " + spawn::describe(process.cause)};
    }
    // The guard ends the daemons that ranks have left to the agent.
    for (auto& [pid, other] : world.processes()) {
      if (other->host != host || !other->is_alive || other->rank < 0 || other->is_rank) continue;
      if (other->env.at(ports::kAgentVariable) == fmt::format("{}:0:0", agent)) world.signal(pid, SIGKILL);
    }
    world.network.send(host, from, [self = shared_from_this()] { self->is_over = true; });
  }
};

class SimulatedLink final : public spawn::AgentLink {
 public:
  explicit SimulatedLink(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~SimulatedLink() override { kill(); }

  spawn::LinkEnds take_ends() override {
    World& world = connection_->world;
    return {UniqueFd(world.open_writer(connection_->to_agent, world.self())),
            UniqueFd(world.open_reader(connection_->from_agent, world.self()))};
  }
  std::optional<spawn::LinkFailure> failure() const override { return connection_->failure; }
  void kill() override {
    if (connection_->is_over || !connection_->world.self().is_alive) return;
    if (connection_->is_pipe) return connection_->world.signal(connection_->agent, SIGKILL);
    connection_->is_over = true;
    connection_->to_agent->close_writer();
    connection_->from_agent->close_reader();
    connection_->from_agent->break_off();
  }
  bool wait(Deadline deadline) override {
    while (!connection_->is_over && !deadline.passed()) connection_->world.sleep(5ms);
    return connection_->is_over;
  }

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace
}  // namespace dslaunch::simulation

namespace dslaunch::launch {

using namespace std::chrono_literals;

std::unique_ptr<spawn::AgentLink> open_node_link(const PlannedNode& node, const ReachOptions& options,
                                                 const std::string& /*own_program*/,
                                                 const std::vector<std::string>& args, int /*inherited*/) {
  using simulation::World;
  World& world = World::current();
  if (!world.self().is_alive) throw simulation::ProcessKilled();
  auto connection = std::make_shared<simulation::Connection>();
  connection->from = world.self().host;
  connection->host = node.host;
  connection->is_pipe = node.reach == Reach::kPipe;
  connection->writes_preamble = std::find(args.begin(), args.end(), "--mark") != args.end();
  if (!args.empty() && args[0] == "--sweep") connection->cleanup_job = args.at(1);
  connection->to_agent = world.make_stream(connection->from, connection->host);
  connection->from_agent = world.make_stream(connection->host, connection->from);
  connection->connect_due = world.clock.now() + options.ssh.connect_timeout;
  if (!connection->is_pipe) {
    const std::weak_ptr<simulation::Connection> there = connection;
    simulation::Simulation::current().connections.push_back({node.host, [there](bool both) {
                                                               if (auto link = there.lock()) link->break_off(both);
                                                             }});
  }
  world.clock.after(connection->is_pipe ? world.random.between(1ms, 20ms) : world.random.between(30ms, 1500ms),
                    [connection] { connection->connect(); });
  return std::make_unique<simulation::SimulatedLink>(std::move(connection));
}

}  // namespace dslaunch::launch
