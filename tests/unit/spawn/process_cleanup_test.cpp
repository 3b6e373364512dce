#include "spawn/process_cleanup.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>

#include "spawn/process.hpp"
#include "support/without_pidfd.hpp"

using namespace dslaunch::spawn;
using namespace std::chrono_literals;

namespace {

std::string mark(const std::string& id) {
  return std::string(kJobIdVariable) + "=" + id;
}

std::string fresh_id() {
  return "sweep-test-" + std::to_string(::getpid());
}

Process start(const std::string& script, std::map<std::string, std::string> env) {
  env["PATH"] = "/usr/bin:/bin";
  auto result = start_process({{"sh", "-c", script}, env, ""});
  REQUIRE(std::holds_alternative<Process>(result));
  Process process = std::move(std::get<Process>(result));
  pollfd poll{process.out.get(), POLLIN, 0};  // every script says when it is ready
  ::poll(&poll, 1, -1);
  return process;
}

}  // namespace

TEST_CASE("finds exactly the processes with all tags", "[spawn][process_cleanup]") {
  std::string id = fresh_id();
  auto mine = start("echo ready; exec sleep 1000", {{kJobIdVariable, id}, {"NODE", "1"}});
  auto other_node = start("echo ready; exec sleep 1000", {{kJobIdVariable, id}, {"NODE", "2"}});
  auto longer = start("echo ready; exec sleep 1000", {{kJobIdVariable, id + "0"}, {"NODE", "1"}});
  CHECK(processes_with({mark(id), "NODE=1"}) == std::vector<pid_t>{mine.pid});
  auto both = processes_with({mark(id)});
  std::sort(both.begin(), both.end());
  std::vector<pid_t> expected{mine.pid, other_node.pid};
  std::sort(expected.begin(), expected.end());
  CHECK(both == expected);
  CHECK(processes_with({}).empty());
  for (const auto* process : {&mine, &other_node, &longer}) {
    signal_group(*process, SIGKILL);
    ::waitpid(process->pid, nullptr, 0);
  }
}

TEST_CASE("cleanup ends detached grandchildren and those that ignore SIGTERM", "[spawn][process_cleanup]") {
  std::string id = fresh_id();
  auto leader = start("trap '' TERM; setsid sleep 1000 >/dev/null 2>&1 & echo ready; exit 0", {{kJobIdVariable, id}});
  ::waitpid(leader.pid, nullptr, 0);
  REQUIRE(processes_with({mark(id)}).size() >= 1);
  CHECK(cleanup_job({mark(id)}, 50ms, false).num_signalled >= 1);
  CHECK(processes_with({mark(id)}).empty());
}

TEST_CASE("cleanup finds a process that keeps calling exec", "[spawn][process_cleanup]") {
  std::string id = fresh_id();
  for (int round = 0; round < 20; ++round) {
    auto restless = start("echo ready; exec sh -c \"$SELF\"", {{kJobIdVariable, id}, {"SELF", "exec sh -c \"$SELF\""}});
    CHECK(cleanup_job({mark(id)}, 0ms, false).num_signalled == 1);
    signal_group(restless, SIGKILL);
    ::waitpid(restless.pid, nullptr, 0);
  }
}

TEST_CASE("as a subreaper, cleanup also ends orphans without the job's tags", "[spawn][process_cleanup]") {
  pid_t agent = ::fork();  // a process of its own: being a subreaper cannot be taken back in the test's
  if (agent == 0) {
    become_subreaper();
    auto result = start_process({{"sh", "-c", "env -i setsid sleep 1000 >/dev/null 2>&1 & echo ready"},
                                 {{"PATH", "/usr/bin:/bin"}, {kJobIdVariable, fresh_id()}},
                                 ""});
    auto& leader = std::get<Process>(result);
    ::waitpid(leader.pid, nullptr, 0);
    bool had_orphan = ::waitpid(-1, nullptr, WNOHANG) == 0;
    cleanup_job({mark(fresh_id())}, 0ms, true);
    bool has_none = ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
    ::_exit(had_orphan && has_none ? 0 : 1);
  }
  int status = -1;
  ::waitpid(agent, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("cleanup works without pidfds", "[spawn][process_cleanup]") {
  std::string id = fresh_id();
  auto leader = start("trap '' TERM; setsid sleep 1000 >/dev/null 2>&1 & echo ready; exit 0", {{kJobIdVariable, id}});
  ::waitpid(leader.pid, nullptr, 0);
  REQUIRE(processes_with({mark(id)}).size() >= 1);
  CHECK(dslaunch::test::holds_without_pidfds([&] { return cleanup_job({mark(id)}, 50ms, false).num_signalled >= 1; }));
  CHECK(processes_with({mark(id)}).empty());
  cleanup_job({mark(id)}, 0ms, false);
}
