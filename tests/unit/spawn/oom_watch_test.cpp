#include "spawn/oom_watch.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using namespace dslaunch::spawn;

TEST_CASE("the count of oom kills is found in both versions of cgroups", "[spawn][oom_watch]") {
  CHECK(parse_oom_kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n") == 2);
  CHECK(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") == 7);
  CHECK_FALSE(parse_oom_kills("low 0\n").has_value());
  CHECK_FALSE(parse_oom_kills("").has_value());
}

TEST_CASE("the cgroup's file follows from /proc/self/cgroup", "[spawn][oom_watch]") {
  CHECK(oom_events_path("0::/user.slice/x\n") == "/sys/fs/cgroup/user.slice/x/memory.events");
  CHECK(oom_events_path("5:cpu:/a\n4:memory:/docker/b\n") == "/sys/fs/cgroup/memory/docker/b/memory.oom_control");
  CHECK(oom_events_path("5:cpu:/a\n").empty());
}

TEST_CASE("only a SIGKILL is explained by missing memory", "[spawn][oom_watch]") {
  OomWatch watch;
  CHECK(watch.explain({.kind = ExitCause::Kind::kExited, .number = 1}).empty());
  CHECK(watch.explain({.kind = ExitCause::Kind::kSignaled, .number = SIGSEGV}).empty());
}
