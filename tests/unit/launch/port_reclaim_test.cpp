#include "launch/doctor/port_reclaim.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "launch/process/agent_tag.hpp"
#include "ports/process_info.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using Catch::Contains;

namespace {

// Held by a process with the environment of a rank: a shell that inherited the listener and lives in a session of its
// own. `agent` is what it calls its agent; empty: it carries no job.
class Rank {
 public:
  Rank(const std::string& agent, int listener) {
    int ready[2], hold[2];
    REQUIRE((pipe(ready) == 0 && pipe(hold) == 0));
    pid_ = fork();
    if (pid_ == 0) {
      dup(listener);  // inherited: unlike the listener itself, it is not closed by exec
      dup2(ready[1], STDOUT_FILENO);
      dup2(hold[0], STDIN_FILENO);
      close(hold[1]);
      if (!agent.empty()) setenv("DSLAUNCH_JOB_ID", "20260131-174502-4711", 1);
      if (!agent.empty()) setenv(ports::kAgentVariable, agent.c_str(), 1);
      execlp("sh", "sh", "-c", "trap '' TERM; echo up; read until_told", static_cast<char*>(nullptr));
      _exit(127);
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    close(hold[0]);
    hold_ = hold[1];
  }
  ~Rank() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(hold_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  bool runs() const { return kill(pid_, 0) == 0 && ports::read_process(pid_)->state != 'Z'; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int hold_ = -1;
};

std::string dead_agent() {
  std::string mark = own_agent_tag();
  // Our number with another start is a process that is gone.
  return std::to_string(getpid()) + ":1" + mark.substr(mark.rfind(':'));
}

ports::HeldPort any_port(const char* address) {
  auto held = ports::hold_port(address, 0);
  return std::move(std::get<ports::HeldPort>(held));
}

}  // namespace

TEST_CASE("a port is reclaimed from a dead dslaunch job and reported", "[launch][port_reclaim]") {
  for (const char* address : {"127.0.0.1", "::1", ""}) {
    CAPTURE(address);
    auto held = any_port(address);
    Rank rank(dead_agent(), held.listener.get()), worker(dead_agent(), held.listener.get());
    held.listener.reset();
    std::vector<std::string> said;
    auto outcome = hold_or_reclaim_port(address, held.port, [&](const std::string& line) { said.push_back(line); });
    REQUIRE(std::holds_alternative<ports::HeldPort>(outcome));
    CHECK(std::get<ports::HeldPort>(outcome).port == held.port);
    CHECK_FALSE(rank.runs());
    CHECK_FALSE(worker.runs());
    REQUIRE(said.size() == 2);
    CHECK_THAT(said[0], Contains("held by pid") && Contains("job 20260131-174502-4711") &&
                            Contains("launcher has exited: killed"));
  }
}

TEST_CASE("no process is ended if one holder is alive or not of a job", "[launch][port_reclaim]") {
  for (const std::string& other : {own_agent_tag(), std::string(), std::string("garbage")}) {
    CAPTURE(other);
    auto held = any_port("127.0.0.1");
    Rank dead(dead_agent(), held.listener.get()), living(other, held.listener.get());
    held.listener.reset();
    auto outcome = hold_or_reclaim_port("127.0.0.1", held.port, [](const std::string&) { FAIL("nothing was done"); });
    REQUIRE(std::holds_alternative<ports::Busy>(outcome));
    CHECK(std::get<ports::Busy>(outcome).holders.size() == 2);
    CHECK(dead.runs());
    CHECK(living.runs());
  }
}

TEST_CASE("a free port is held", "[launch][port_reclaim]") {
  auto outcome = hold_or_reclaim_port("127.0.0.1", 0, [](const std::string&) { FAIL("nothing was done"); });
  CHECK(std::holds_alternative<ports::HeldPort>(outcome));
}
