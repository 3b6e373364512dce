// A job whose files stand still for a while, as on a network's file system: what its agents notice of it.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

#include "launch/supervisor/supervisor.hpp"
#include "support/fake_agent.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;
using test::FakeAgent;
using test::SocketLink;

namespace {

// A full pipe in a file's place: writing to it waits.
class StalledFile {
 public:
  explicit StalledFile(const std::string& path) {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    pipe_.reset(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    while (::write(pipe_.get(), buffer_.data(), buffer_.size()) > 0) {
    }
  }
  void go_on() {
    while (::read(pipe_.get(), buffer_.data(), buffer_.size()) > 0) {
    }
  }

 private:
  std::array<char, 4096> buffer_{};
  UniqueFd pipe_;
};

LaunchPlan plan_in(const test::TempDir& dir) {
  LaunchPlan plan;
  plan.detach = true;  // nothing is written to this program's terminal
  plan.job_id = "job";
  plan.run_dir = dir / "run";
  plan.job_dir = dir / "job";
  plan.reach.silence_limit = 1000ms;
  PlannedNode node;
  node.host = "node0";
  node.reach = Reach::kNodeJoin;
  node.ranks.resize(1);
  plan.nodes.push_back(node);
  std::filesystem::create_directories(dir / "job");
  return plan;
}

// Gets one rank's job and starts it.
bool starts(FakeAgent& agent) {
  agent.send(AgentHello{});
  bool came = agent.receive<JobDescription>().has_value();
  agent.send(AgentReady{});
  came = came && agent.receive<StartRanks>().has_value();
  agent.send(RankStarted{0, 1});
  return came;
}

void ends(FakeAgent& agent) {
  agent.send(RankEnded{0, {}, false});
  agent.send(AgentDone{});
}

// The first one may have been on its way.
bool hears_two_heartbeats(FakeAgent& agent) {
  return agent.receive<Heartbeat>().has_value() && agent.receive<Heartbeat>().has_value();
}

void leave(Supervisor& /*supervisor*/) {}

// The job under a supervisor, with `far_side` at the agent's end of the way. Its exit code.
template <class FarSide>
int supervise(const LaunchPlan& plan, LiveJob& live, FarSide far_side, void (*then)(Supervisor&) = leave) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  SupervisorOptions options;
  options.live = &live;
  options.links.push_back(std::make_unique<SocketLink>(ends[0]));
  FakeAgent agent(ends[1]);
  Supervisor supervisor(plan, std::move(options));
  std::thread thread([&] { far_side(agent); });
  int exit_code = supervisor.run().outcome.exit_code;
  thread.join();
  then(supervisor);
  return exit_code;
}

}  // namespace

TEST_CASE("a stalled file does not delay heartbeats", "[launch][stalled_files]") {
  const std::string record = "job/job.json." + std::to_string(::getpid());
  const std::string name = GENERATE_COPY(as<std::string>{}, "job/console.log", record);
  CAPTURE(name);
  test::TempDir dir;
  const LaunchPlan plan = plan_in(dir);
  std::optional<StalledFile> file;
  const bool is_record = name == record;  // the first one is written before there is any agent
  if (!is_record) file.emplace(dir / name);
  LiveJob live(plan, {dir / "job"});
  if (is_record) file.emplace(dir / name);
  bool came = false;
  auto far_side = [&](FakeAgent& agent) {
    came = starts(agent);
    agent.send(RankOutput{0, Stream::kOut, "word\n"});
    came = came && hears_two_heartbeats(agent);
    file->go_on();
    ends(agent);
  };
  CHECK(supervise(plan, live, far_side) == 0);
  CHECK(came);
}

TEST_CASE("a rank that writes blocks while a file is stalled", "[launch][stalled_files]") {
  test::TempDir dir;
  const LaunchPlan plan = plan_in(dir);
  StalledFile file(dir / "job/console.log");
  LiveJob live(plan, {dir / "job"});
  size_t num_waiting = 0;
  auto far_side = [&](FakeAgent& agent) {
    starts(agent);
    for (int i = 0; i < 32; ++i) agent.send(RankOutput{0, Stream::kOut, std::string(1U << 20, 'x')});
    hears_two_heartbeats(agent);
    num_waiting = agent.num_unsent();
    ends(agent);
    while (agent.num_unsent() > 0) {
      file.go_on();
      agent.flush();
    }
  };
  CHECK(supervise(plan, live, far_side) == 0);
  CHECK(num_waiting > (16U << 20));
}

TEST_CASE("a Ctrl-C at the end of a job ends the wait for a stalled file", "[launch][stalled_files]") {
  test::TempDir dir;
  const LaunchPlan plan = plan_in(dir);
  StalledFile file(dir / "job/console.log");
  LiveJob live(plan, {dir / "job"});
  auto far_side = [](FakeAgent& agent) {
    starts(agent);
    agent.send(RankOutput{0, Stream::kOut, "word\n"});
    ends(agent);
  };
  auto press_and_drain = [](Supervisor& supervisor) {
    ::kill(::getpid(), SIGINT);
    supervisor.shutdown().drain_output();
    CHECK_FALSE(supervisor.output().files_keep_up());
  };
  CHECK(supervise(plan, live, far_side, press_and_drain) == 0);
}

TEST_CASE("stalled files do not keep ranks from ending on request", "[launch][stalled_files]") {
  test::TempDir dir;
  LaunchPlan plan = plan_in(dir);
  plan.grace = 60s;
  StalledFile file(dir / "job/console.log");
  LiveJob live(plan, {dir / "job"});
  bool was_told = false;
  auto far_side = [&](FakeAgent& agent) {
    starts(agent);
    for (int i = 0; i < 32; ++i) agent.send(RankOutput{0, Stream::kOut, std::string(1U << 20, 'x')});
    ::kill(::getpid(), SIGTERM);
    was_told = agent.receive<StopRanks>().has_value();
    ends(agent);
    for (const auto patience = Deadline::after(30s); agent.num_unsent() > 0 && !patience.passed(); agent.flush()) {
      std::this_thread::yield();
    }
  };
  const auto begin = Deadline::Clock::now();
  CHECK(supervise(plan, live, far_side) == 0);
  CHECK(was_told);
  CHECK(Deadline::Clock::now() - begin < 20s);
}

TEST_CASE("a hurried end waits only briefly for stalled files", "[launch][stalled_files]") {
  test::TempDir dir;
  const LaunchPlan plan = plan_in(dir);
  StalledFile file(dir / "job/console.log");
  LiveJob live(plan, {dir / "job"});
  auto far_side = [](FakeAgent& agent) {
    starts(agent);
    agent.send(RankOutput{0, Stream::kOut, "word\n"});
    ::kill(::getpid(), SIGQUIT);
    agent.receive<StopRanks>();
    ends(agent);
  };
  auto drain = [](Supervisor& supervisor) {
    const auto begin = Deadline::Clock::now();
    supervisor.shutdown().drain_output();
    CHECK(Deadline::Clock::now() - begin < 8s);
    CHECK_FALSE(supervisor.output().files_keep_up());
  };
  CHECK(supervise(plan, live, far_side, drain) == 131);
}

TEST_CASE("standard output that is a file is written by the file thread", "[launch][stalled_files]") {
  test::TempDir dir;
  UniqueFd file(::open((dir / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  std::promise<void> gate;
  FileThread thread;
  thread.submit(0, [gate = gate.get_future().share()] {
    gate.wait();
    return std::string("waited");
  });
  Terminal terminal(file.get(), &thread);
  terminal.write("one ");
  terminal.write("two");
  CHECK(terminal.num_pending() == 0);
  CHECK(terminal.has_lost());
  CHECK_FALSE(thread.wait(Deadline::after(0ms)));
  gate.set_value();
  REQUIRE(thread.wait(Deadline::after(5s)));
  CHECK_FALSE(terminal.has_lost());
  CHECK(test::read_file(dir / "out") == "one two");
  CHECK(thread.take_errors() == std::vector<std::string>{"waited"});
}
