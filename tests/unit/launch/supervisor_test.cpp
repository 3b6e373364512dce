#include "launch/supervisor/supervisor.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "support/expect_error.hpp"
#include "support/fake_agent.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

static std::atomic<int> g_times_node1_was_looked_up{0};

// Stands before the name service in the whole program.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** list) {
  if (name != nullptr && std::string_view(name) == "node1") ++g_times_node1_was_looked_up;
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(name, service, hints, list);
}

namespace {

// A way whose other end is gone before it has greeted, and of which something stays behind for ever.
class StuckLink final : public spawn::AgentLink {
 public:
  explicit StuckLink(std::vector<Deadline>& waits) : waits_(waits) {}
  spawn::LinkEnds take_ends() override {
    return {UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
  }
  std::optional<spawn::LinkFailure> failure() const override { return std::nullopt; }
  void kill() override {}
  bool wait(Deadline deadline) override {
    waits_.push_back(deadline);
    return false;
  }

 private:
  std::vector<Deadline>& waits_;
};

// A way that fails in no way of ours.
class OddLink final : public spawn::AgentLink {
 public:
  spawn::LinkEnds take_ends() override { throw std::out_of_range("no ends"); }
  std::optional<spawn::LinkFailure> failure() const override { return std::nullopt; }
  void kill() override {}
  bool wait(Deadline) override { return true; }
};

LaunchPlan plan_of(int num_nodes) {
  LaunchPlan plan;
  plan.detach = true;  // nothing is written to this program's terminal
  for (int node = 0; node < num_nodes; ++node) {
    PlannedNode planned;
    planned.node_rank = node;
    planned.host = "node" + std::to_string(node);
    planned.reach = Reach::kSsh;
    plan.nodes.push_back(planned);
  }
  return plan;
}

// A job on nodes that came to us by themselves, a rank on each, and those nodes' agents.
struct FarNodes {
  explicit FarNodes(int num_nodes) : plan(plan_of_nodes(num_nodes)) {
    options.live = &live;
    for (int node = 0; node < num_nodes; ++node) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      options.links.push_back(std::make_unique<test::SocketLink>(ends[0]));
      agents.emplace_back(ends[1]);
    }
  }
  JobReport supervise() { return Supervisor(plan, std::move(options)).run(); }
  void send(int node, const MessageToLauncher& message) {
    agents[node].send(message);
    agents[node].flush();
  }

  void expect_last_word(int exit_code, const std::string& words) {
    for (auto& agent : agents) {
      const auto word = agent.receive<JobEnded>();
      REQUIRE(word);
      CHECK(word->exit_code == exit_code);
      CHECK_THAT(word->summary, Catch::Matchers::Contains(words));
    }
  }

  static LaunchPlan plan_of_nodes(int num_nodes) {
    LaunchPlan plan = plan_of(num_nodes);
    for (auto& node : plan.nodes) {
      node.reach = Reach::kNodeJoin;
      node.ranks.resize(1);
      node.ranks[0].rank = node.node_rank;
    }
    return plan;
  }

  LaunchPlan plan;
  LiveJob live{plan, {}};
  SupervisorOptions options;
  std::deque<test::FakeAgent> agents;
};

}  // namespace

TEST_CASE("links that do not end share one deadline", "[launch][supervisor]") {
  const LaunchPlan plan = plan_of(4);
  LiveJob live(plan, {});
  std::vector<Deadline> waits;
  SupervisorOptions options;
  options.live = &live;
  for (size_t node = 0; node < plan.nodes.size(); ++node) options.links.push_back(std::make_unique<StuckLink>(waits));
  Supervisor supervisor(plan, std::move(options));
  CHECK(supervisor.run().host_failures.size() == 4);
  REQUIRE(waits.size() == 4);
  for (const auto& wait : waits) CHECK(wait.when() == waits[0].when());
}

TEST_CASE("an agent that exits before it is ready is lost and not waited for", "[launch][supervisor]") {
  FarNodes nodes(1);
  nodes.send(0, AgentHello{});
  nodes.send(0, AgentDone{});
  nodes.agents.clear();
  const JobReport report = nodes.supervise();
  CHECK(report.outcome.exit_code == 69);
  REQUIRE(report.host_failures.size() == 1);
  CHECK(report.host_failures[0].first == "node0");
}

TEST_CASE("a supervisor that cannot continue gives its agents time to clean up", "[launch][supervisor]") {
  const LaunchPlan plan = plan_of(2);
  LiveJob live(plan, {});
  std::vector<Deadline> waits;
  SupervisorOptions options;
  options.live = &live;
  options.links.push_back(std::make_unique<StuckLink>(waits));
  options.links.push_back(std::make_unique<OddLink>());
  Supervisor supervisor(plan, std::move(options));
  CHECK_THROWS_AS(supervisor.run(), std::out_of_range);
  CHECK(waits.size() == 1);
}

TEST_CASE("an agent that never gets ready is given up", "[launch][supervisor]") {
  FarNodes nodes(1);
  nodes.options.preparation_time = std::chrono::milliseconds(50);
  nodes.send(0, AgentHello{});
  const JobReport report = nodes.supervise();
  CHECK(report.outcome.exit_code == 69);
  REQUIRE(report.host_failures.size() == 1);
  CHECK_THAT(report.host_failures[0].second.text, Catch::Matchers::Contains("not ready within"));
}

TEST_CASE("the time to connect is the agent's time to greet, too", "[launch][supervisor]") {
  FarNodes nodes(1);
  nodes.plan.nodes[0].reach = Reach::kSsh;
  nodes.plan.reach.ssh.connect_timeout = nodes.plan.reach.greeting_timeout = std::chrono::milliseconds(50);
  const auto begin = Deadline::Clock::now();
  const JobReport report = nodes.supervise();
  CHECK(Deadline::Clock::now() - begin < std::chrono::seconds(10));
  CHECK(report.outcome.exit_code == 69);
  REQUIRE(report.host_failures.size() == 1);
  CHECK_THAT(report.host_failures[0].second.text,
             Catch::Matchers::Contains("did not greet within 0.05 s of the start of the connection"));
}

TEST_CASE("incompatible hosts are not blamed on the last one to greet", "[launch][supervisor]") {
  FarNodes nodes(2);
  nodes.plan.device = "auto";
  AgentHello with_a_device;
  with_a_device.devices = {"0"};
  nodes.send(0, with_a_device);
  nodes.send(1, AgentHello{});
  test::expect_error(ExitCode::kUnavailable, {"some hosts have GPUs and some have none"}, [&] { nodes.supervise(); });
  nodes.expect_last_word(69, "node rank 0: some hosts have GPUs and some have none");
}

TEST_CASE("externally started nodes learn why an attempt could not start", "[launch][supervisor]") {
  FarNodes nodes(2);
  nodes.plan.output.each_rank_log = "/dev/null/logs";
  test::expect_error(ExitCode::kCannotCreate, {"/dev/null/logs"}, [&] { nodes.supervise(); });
  nodes.expect_last_word(73, "/dev/null/logs");
}

TEST_CASE("the loop resolves no host name", "[launch][supervisor]") {
  FarNodes nodes(2);
  nodes.plan.nodes[0].reach = Reach::kPipe;
  nodes.options.preparation_time = std::chrono::milliseconds(50);
  AgentHello with_addresses;
  with_addresses.addresses = {"127.0.0.7"};
  nodes.send(0, AgentHello{});
  nodes.send(1, with_addresses);
  nodes.supervise();
  CHECK(nodes.agents[1].receive<JobDescription>());
  CHECK(g_times_node1_was_looked_up == 0);
}

TEST_CASE("an agent of another protocol version is reported as such", "[launch][supervisor]") {
  FarNodes nodes(1);
  AgentHello older;
  older.version = 1;
  nodes.send(0, older);
  const JobReport report = nodes.supervise();
  CHECK(report.outcome.exit_code == 69);
  REQUIRE(report.ended_by.size() == 1);
  CHECK_THAT(report.ended_by[0].second.text, Catch::Matchers::Contains("(protocol 1)"));
  CHECK_THAT(report.summary, Catch::Matchers::Contains("(protocol 1)"));
}

TEST_CASE("a pause before a restart ends with a signal that a node passes on", "[launch][supervisor]") {
  FarNodes nodes(2);
  Supervisor supervisor(nodes.plan, std::move(nodes.options));
  std::thread far([&] {
    for (int node : {0, 1}) nodes.send(node, AgentHello{});
    for (auto& agent : nodes.agents) {
      agent.receive<JobDescription>();
      agent.send(AgentReady{1});
    }
    for (int node : {0, 1}) {
      nodes.agents[node].receive<StartRanks>();
      nodes.send(node, RankEnded{node, {.number = 3}, false});
      nodes.send(node, AgentDone{});
    }
  });
  const JobReport report = supervisor.run();
  far.join();
  CHECK(report.outcome.exit_code == 3);
  CHECK(report.run_time < std::chrono::seconds(60));
  CHECK(supervisor.pause_before_restart(std::chrono::milliseconds(1)) == StopReason::kNone);
  nodes.send(1, SignalTaken{SIGTERM});
  const auto begin = Deadline::Clock::now();
  CHECK(supervisor.pause_before_restart(std::chrono::minutes(10)) == StopReason::kTerminate);
  CHECK(Deadline::Clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("the cause of a job's end comes last, also when it was an agent", "[launch][supervisor]") {
  FarNodes nodes(2);
  std::thread far([&] {
    for (int node : {0, 1}) nodes.send(node, AgentHello{});
    for (auto& agent : nodes.agents) {
      agent.receive<JobDescription>();
      agent.send(AgentReady{1});
    }
    for (int node : {0, 1}) nodes.send(node, RankStarted{node, 4711});
    nodes.send(1, AgentFailed{69, "out of everything"});
    for (int node : {0, 1}) {
      nodes.agents[node].receive<StopRanks>();
      nodes.send(node, RankEnded{node, {.kind = spawn::ExitCause::Kind::kSignaled, .number = 15}, true});
      nodes.send(node, AgentDone{});
    }
  });
  const JobReport report = nodes.supervise();
  far.join();
  CHECK(report.outcome.exit_code == 69);
  CHECK_THAT(report.summary, Catch::Matchers::StartsWith("dslaunch: ranks 0, 1: stopped by dslaunch"));
  CHECK_THAT(report.summary, Catch::Matchers::EndsWith("dslaunch: the job ended: node1: out of everything\n"));
}

TEST_CASE("an unkillable rank is reported and does not delay the job", "[launch][supervisor]") {
  FarNodes nodes(2);
  std::thread far([&] {
    for (int node : {0, 1}) nodes.send(node, AgentHello{});
    for (auto& agent : nodes.agents) {
      agent.receive<JobDescription>();
      agent.send(AgentReady{1});
    }
    for (int node : {0, 1}) nodes.send(node, RankStarted{node, 4711});
    nodes.send(0, RankEnded{0, {.number = 3}, false});
    nodes.send(0, AgentDone{});
    nodes.agents[1].receive<StopRanks>();
    nodes.send(1, ProcessStuck{1, {4711, 1, 'D', "rpc_wait_bit"}});
    nodes.send(1, AgentDone{});
  });
  const JobReport report = nodes.supervise();
  far.join();
  CHECK(report.outcome.exit_code == 3);
  REQUIRE(report.stuck.size() == 1);
  CHECK((report.stuck[0].rank == 1 && report.stuck[0].host == "node1" && !report.stuck[0].is_here));
  CHECK_THAT(report.summary, Catch::Matchers::Contains("rank 1 on node1: process 4711 is stuck in the kernel"));
  CHECK(report.host_failures.empty());
}
