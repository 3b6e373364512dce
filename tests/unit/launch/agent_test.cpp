// The agent as its launcher meets it.
#include "launch/agent/agent.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "launch/agent/descriptor_check.hpp"
#include "support/fake_agent.hpp"
#include "support/refused_threads.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

// An agent in a process of its own: it takes the signals and the children of its process.
class AgentProcess {
 public:
  template <class Before>
  explicit AgentProcess(Before&& before) : channel_(make(before)) {}
  ~AgentProcess() {
    channel_.close_output();
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  void send(const MessageToAgent& message) { channel_.send(message); }
  // The next message of this kind; none: it did not come in time, or the agent is gone.
  template <class Wanted>
  std::optional<Wanted> receive() {
    const Deadline patience = Deadline::after(20s);
    for (bool there = true; there && !patience.passed();) {
      PollSet polls;
      polls.add(channel_.input(), POLLIN);
      polls.wait(patience);
      there = channel_.receive();
      while (auto message = channel_.next()) {
        if (auto* wanted = std::get_if<Wanted>(&*message)) return std::move(*wanted);
      }
    }
    return std::nullopt;
  }

 private:
  template <class Before>
  ChannelToAgent make(Before&& before) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    UniqueFd ours(ends[0]), theirs(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ours.reset();
      try {
        ::setenv("TMPDIR", temporary_.path().c_str(), 1);
        before();
        UniqueFd output(::dup(theirs.get()));
        Agent agent(ChannelToLauncher(std::move(theirs), std::move(output)), {});
        ::_exit(agent.run() ? 0 : 1);
      } catch (...) {
        ::_exit(99);  // the main's
      }
    }
    UniqueFd output(::dup(ours.get()));
    return ChannelToAgent(std::move(ours), std::move(output));
  }

  test::TempDir temporary_;  // one that is killed clears nothing away
  pid_t pid_ = -1;
  ChannelToAgent channel_;
};

JobDescription job_of(const std::vector<std::string>& argv) {
  JobDescription job;
  job.job_id = "agent-test-" + std::to_string(::getpid());
  job.token.resize(32);
  job.master_addr = "127.0.0.1";
  job.host = "localhost";
  job.rank_hosts = {"localhost"};
  job.node_addresses = {"127.0.0.1"};
  job.env = {{"PATH", "/usr/bin:/bin"}};
  job.ranks = {{.rank = 0, .local_rank = 0, .argv = argv, .env = {}}};
  return job;
}

}  // namespace

TEST_CASE("an agent that cannot prepare reports the reason", "[launch][agent]") {
  AgentProcess agent([] { num_threads_granted = 0; });  // the store has one
  agent.send(job_of({"true"}));
  const auto failed = agent.receive<AgentFailed>();
  REQUIRE(failed);
  CHECK(failed->exit_code == 69);
  CHECK_THAT(failed->message, Catch::Matchers::Contains("cannot create a thread"));
  CHECK(agent.receive<AgentDone>());
}

TEST_CASE("an agent with too few descriptors reports it before any rank starts", "[launch][agent]") {
  AgentProcess agent([] {
    const rlimit limit{24, 24};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  });
  JobDescription job = job_of({"true"});
  job.ranks.resize(4, job.ranks[0]);
  agent.send(job);
  const auto failed = agent.receive<AgentFailed>();
  REQUIRE(failed);
  CHECK(failed->exit_code == 69);
  CHECK_THAT(failed->message, Catch::Matchers::Contains("4 ranks of this node need 24 more, and the hard limit of 24"));
  CHECK(agent.receive<AgentDone>());
}

TEST_CASE("counts two pipes per rank, and on node rank 0 one connection per worker", "[launch][agent]") {
  JobDescription job = job_of({"true"});
  job.ranks.resize(8, job.ranks[0]);
  job.world_size = 24;
  const size_t pipes = descriptors_needed(job);
  job.kind = JobKind::kRun;
  CHECK(descriptors_needed(job) == pipes + 24);
  job.node_rank = 1;
  CHECK(descriptors_needed(job) == pipes);
  job.ranks.resize(7);
  CHECK(descriptors_needed(job) == pipes - 2);
}

TEST_CASE("an agent sends heartbeats while it prepares", "[launch][agent]") {
  test::TempDir dir;
  const std::string go = dir / "go", worker = dir.write("worker", "#!/bin/sh\nread word <'" + go + "'; echo v7\n");
  REQUIRE(::mkfifo(go.c_str(), 0600) == 0);
  REQUIRE(::chmod(worker.c_str(), 0700) == 0);
  AgentProcess agent([] {});
  JobDescription job = job_of({worker});
  job.preflight.worker_version = "v7";
  job.heartbeat_interval = 100ms;
  agent.send(job);
  for (int beat = 0; beat < 3; ++beat) REQUIRE(agent.receive<Heartbeat>());
  test::write_file(go, "go\n");
  CHECK(agent.receive<AgentReady>());
}

TEST_CASE("ranks end on the last message of a launcher that cannot continue", "[launch][agent]") {
  AgentProcess agent([] {});
  agent.send(job_of({"sleep", "1000"}));
  REQUIRE(agent.receive<AgentReady>());
  agent.send(StartRanks{});
  REQUIRE(agent.receive<RankStarted>());
  agent.send(JobEnded{});
  const auto ended = agent.receive<RankEnded>();
  REQUIRE(ended);
  CHECK(ended->stopped_by_us);
}
