#include "ports/parenthood.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace dslaunch::ports;

namespace {

ProcessInfo process(pid_t pid, pid_t parent, pid_t session, const std::string& name, const std::string& command) {
  ProcessInfo info;
  info.identity = {pid, pid == 1 ? 10u : 100000u};
  info.parent = parent;
  info.session = session;
  info.name = name;
  info.command = command.empty() ? name : command;
  return info;
}

// A child with pid 500 in `session` under a parent that is described by the rest.
Parenthood of(pid_t session, pid_t parent_pid, pid_t parent_session, const std::string& name,
              const std::string& command = {}) {
  return parenthood(process(500, parent_pid, session, "python3", {}),
                    process(parent_pid, 0, parent_session, name, command));
}

}  // namespace

TEST_CASE("a child in its parent's session, or leading its own, has its parent", "[ports][parenthood]") {
  CHECK(of(400, 400, 400, "bash") == Parenthood::kAlive);
  CHECK(of(400, 450, 400, "python3") == Parenthood::kAlive);
  CHECK(of(500, 400, 400, "torchrun") == Parenthood::kAlive);
  CHECK(of(0, 400, 400, "bash") == Parenthood::kAlive);  // a session outside of this container tells nothing
}

TEST_CASE("a child in a third session came from a parent in between, which is gone", "[ports][parenthood]") {
  CHECK(of(300, 400, 400, "subreaper") == Parenthood::kLost);
}

TEST_CASE("the user's systemd takes over what others started", "[ports][parenthood]") {
  CHECK(of(500, 400, 400, "systemd", "/lib/systemd/systemd --user") == Parenthood::kLost);
  CHECK(of(400, 400, 400, "systemd", "/lib/systemd/systemd --user") == Parenthood::kLost);
}

TEST_CASE("under an init that starts only services, or nothing, a child is an orphan", "[ports][parenthood]") {
  for (const char* init : {"systemd", "sleep", "tail", "pause"}) {
    CAPTURE(init);
    CHECK(of(500, 1, 1, init) == Parenthood::kLost);
    CHECK(of(300, 1, 1, init) == Parenthood::kLost);
    CHECK(of(1, 1, 1, init) == Parenthood::kLost);
  }
}

TEST_CASE("a container's first program may have started what shares its session", "[ports][parenthood]") {
  CHECK(of(1, 1, 1, "bash", "bash start.sh") == Parenthood::kUnclear);
  CHECK(of(300, 1, 1, "bash", "bash start.sh") == Parenthood::kLost);
  CHECK(of(500, 1, 1, "tini") == Parenthood::kLost);
}

TEST_CASE("workers of a launcher that is pid 1 are not taken for orphans", "[ports][parenthood]") {
  CHECK(of(500, 1, 1, "python3", "/usr/bin/python3 /usr/bin/torchrun train.py") == Parenthood::kUnclear);
  CHECK(of(500, 1, 1, "python3", "python3 -m torch.distributed.run train.py") == Parenthood::kUnclear);
  CHECK(of(500, 1, 1, "dslaunch", "dslaunch exec -- python train.py") == Parenthood::kUnclear);
  CHECK(of(300, 1, 1, "dslaunch", "dslaunch exec -- python train.py") == Parenthood::kLost);
}

TEST_CASE("what started together with a container's init is its program", "[ports][parenthood]") {
  auto child = process(7, 1, 7, "python3", {});
  child.identity.start_ticks = 30;
  CHECK(parenthood(child, process(1, 0, 1, "dumb-init", {})) == Parenthood::kUnclear);
}

TEST_CASE("a parent outside of the container, and one that has just gone", "[ports][parenthood]") {
  CHECK(parenthood(process(500, 0, 500, "python3", {}), std::nullopt) == Parenthood::kUnclear);
  CHECK(parenthood(process(500, 400, 500, "python3", {}), std::nullopt) == Parenthood::kLost);
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
