#include "ports/process_tree.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace dslaunch::ports;

namespace {

ProcessInfo process(pid_t pid, pid_t parent, pid_t session, const std::string& name, const std::string& command) {
  ProcessInfo info;
  info.identity = {pid, pid == 1 ? 10u : 100000u};
  info.parent = parent;
  info.group = session;
  info.session = session;
  info.name = name;
  info.command = command.empty() ? name : command;
  return info;
}

// A child with pid 500 in `session` under a parent that is described by the rest. A session 300 has lost its leader.
Lineage lineage(pid_t session, pid_t parent_pid, pid_t parent_session, const std::string& name,
                const std::string& command = {}) {
  return {.child = process(500, parent_pid, session, "python3", {}),
          .parent = process(parent_pid, 0, parent_session, name, command),
          .group_leader_gone = session == 300,
          .session_leader_gone = session == 300};
}

ParentStatus of(pid_t session, pid_t parent_pid, pid_t parent_session, const std::string& name,
                const std::string& command = {}) {
  return parent_status(lineage(session, parent_pid, parent_session, name, command));
}

}  // namespace

TEST_CASE("a child in its parent's session, or leading its own, has its parent", "[ports][process_tree]") {
  CHECK(of(400, 400, 400, "bash") == ParentStatus::kStarted);
  CHECK(of(400, 450, 400, "python3") == ParentStatus::kStarted);
  CHECK(of(500, 400, 400, "torchrun") == ParentStatus::kStarted);
  CHECK(of(0, 400, 400, "bash") == ParentStatus::kStarted);  // a session outside of this container tells nothing
}

TEST_CASE("a child in a third session, or older than its parent, is an orphan", "[ports][process_tree]") {
  CHECK(of(350, 400, 400, "subreaper") == ParentStatus::kOrphaned);
  Lineage adopted = lineage(400, 400, 400, "subreaper");
  adopted.child.identity.start_ticks -= 1;
  CHECK(parent_status(adopted) == ParentStatus::kOrphaned);
}

TEST_CASE("the user's systemd takes over what others started", "[ports][process_tree]") {
  CHECK(of(500, 400, 400, "systemd", "/lib/systemd/systemd --user") == ParentStatus::kOrphaned);
  CHECK(of(400, 400, 400, "systemd", "/lib/systemd/systemd --user") == ParentStatus::kOrphaned);
}

TEST_CASE("under an init that starts only services, or nothing, a child is an orphan", "[ports][process_tree]") {
  for (const char* init : {"systemd", "sleep", "tail", "pause", "sshd"}) {
    CAPTURE(init);
    CHECK(of(500, 1, 1, init) == ParentStatus::kOrphaned);
    CHECK(of(300, 1, 1, init) == ParentStatus::kOrphaned);
  }
  CHECK(of(1, 1, 1, "systemd") == ParentStatus::kOrphaned);
  // "python serve.py & exec sleep infinity"
  CHECK(of(1, 1, 1, "sleep") == ParentStatus::kStarted);
}

TEST_CASE("a container's first program may have started what leads its session", "[ports][process_tree]") {
  for (const char* init : {"bash", "tini", "dumb-init", "a_program_nobody_knows"}) {
    CAPTURE(init);
    CHECK(of(1, 1, 1, init) == ParentStatus::kStarted);
    CHECK(of(300, 1, 1, init) == ParentStatus::kOrphaned);
    CHECK(of(500, 1, 1, init) == ParentStatus::kUnclear);
  }
  // Whatever its age: a program may call setsid when it likes.
  Lineage at_once = lineage(500, 1, 1, "bash");
  at_once.child.identity.start_ticks = 10;
  CHECK(parent_status(at_once) == ParentStatus::kUnclear);
}

TEST_CASE("a rank under a container's first program is an orphan, unless that starts ranks", "[ports][process_tree]") {
  const std::string torchrun = "/usr/bin/python3 /usr/bin/torchrun train.py";
  for (auto sign : {LauncherSign::kElasticRunId, LauncherSign::kCrossRank, LauncherSign::kLocalRankArgument}) {
    auto under = [&](const std::string& name, const std::string& command) {
      Lineage made = lineage(500, 1, 1, name, command);
      made.child.launcher_sign = sign;
      return made;
    };
    const bool counts_under_a_shell = sign != LauncherSign::kLocalRankArgument;
    for (const Lineage& shell : {under("bash", "bash"), under("start.sh", "/bin/sh /start.sh")}) {
      CHECK((parent_status(shell) == ParentStatus::kOrphaned) == counts_under_a_shell);
      CHECK((rank_sign(shell) == sign) == counts_under_a_shell);
    }
    CHECK(parent_status(under("tini", "tini -- torchrun train.py")) == ParentStatus::kOrphaned);
    CHECK(parent_status(under("supervisord", "/usr/bin/python3 /usr/bin/supervisord")) == ParentStatus::kOrphaned);
    CHECK(parent_status(under("torchrun", torchrun)) == ParentStatus::kStarted);
    CHECK(parent_status(under("python3", "python3 -m torch.distributed.run train.py")) == ParentStatus::kUnclear);
    CHECK(parent_status(under("dslaunch", "dslaunch exec -- python train.py")) == ParentStatus::kStarted);
  }
  CHECK(of(300, 1, 1, "torchrun", torchrun) == ParentStatus::kOrphaned);
}

TEST_CASE("a parent outside of the container, and one that has just gone", "[ports][process_tree]") {
  CHECK(parent_status({.child = process(500, 0, 500, "python3", {}), .parent = {}}) == ParentStatus::kUnclear);
  CHECK(parent_status({.child = process(500, 400, 500, "python3", {}), .parent = {}}) == ParentStatus::kOrphaned);
}

TEST_CASE("the innermost unit of a cgroup decides about a service", "[ports][process_info]") {
  CHECK(service_in("0::/system.slice/nginx.service\n") == "nginx.service");
  CHECK(service_in("0::/system.slice/nginx.service/workers\n") == "nginx.service");
  CHECK(service_in("0::/user.slice/user-1000.slice/session-3.scope\n").empty());
  CHECK(service_in("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n").empty());
  CHECK(service_in("0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service\n") ==
        "jupyter.service");
  CHECK(service_in("5:memory:/x.service\n1:name=systemd:/system.slice/cron.service\n0::/\n") == "cron.service");
  CHECK(service_in("0::/\n").empty());
  CHECK(service_in("").empty());
}
