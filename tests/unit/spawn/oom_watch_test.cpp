#include "spawn/oom_watch.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "spawn/exit_diagnostics.hpp"
#include "spawn/process.hpp"

using namespace dslaunch::spawn;
namespace fs = std::filesystem;

TEST_CASE("the count of oom kills is found in both versions of cgroups", "[spawn][oom_watch]") {
  CHECK(parse_oom_kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n") == 2);
  CHECK(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") == 7);
  CHECK_FALSE(parse_oom_kills("low 0\n").has_value());
  CHECK_FALSE(parse_oom_kills("").has_value());
}

TEST_CASE("the cgroup's file follows from the process's cgroups and the mounts", "[spawn][oom_watch]") {
  const std::string two = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  CHECK(oom_events_path("0::/user.slice/x\n", two) == "/sys/fs/cgroup/user.slice/x/memory.events");
  CHECK(oom_events_path("0::/\n", two) == "/sys/fs/cgroup/memory.events");
  CHECK(oom_events_path("0::/../other\n", two).empty());
  const std::string one =
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
  CHECK(oom_events_path("4:memory:/docker/b\n0::/\n", one) == "/sys/fs/cgroup/memory/docker/b/memory.oom_control");
  // A container without a cgroup namespace: its own cgroup is what is mounted.
  const std::string inside = "35 31 0:32 /docker/b /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n";
  CHECK(oom_events_path("4:memory:/docker/b\n", inside) == "/sys/fs/cgroup/memory/memory.oom_control");
  CHECK(oom_events_path("4:memory:/docker/b/c\n", inside) == "/sys/fs/cgroup/memory/c/memory.oom_control");
  CHECK(oom_events_path("4:memory:/docker/bb\n", inside).empty());
  CHECK(oom_events_path("5:cpu:/a\n", one).empty());
  CHECK(oom_events_path("", two).empty());
}

namespace {

// A memory cgroup of the test with a small limit; not made where we may not.
class SmallCgroup {
 public:
  SmallCgroup() {
    std::string name = "dsl-oom-test-" + std::to_string(::getpid());
    for (const char* parent : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      fs::path dir = fs::path(parent) / name;
      std::error_code error;
      if (!fs::create_directory(dir, error)) continue;
      dir_ = dir;
      bool limited = put("memory.limit_in_bytes", "16777216") || put("memory.max", "16777216");
      put("memory.swap.max", "0");
      if (limited) return;
      ::rmdir(dir.c_str());
      dir_.clear();
    }
  }
  ~SmallCgroup() {
    if (there()) ::rmdir(dir_.c_str());
  }
  SmallCgroup(const SmallCgroup&) = delete;
  SmallCgroup& operator=(const SmallCgroup&) = delete;

  bool there() const { return !dir_.empty(); }
  fs::path procs() const { return dir_ / "cgroup.procs"; }

 private:
  bool put(const char* file, const char* text) const {
    if (!fs::exists(dir_ / file)) return false;
    std::ofstream out(dir_ / file);
    return static_cast<bool>(out << text << std::flush);
  }
  fs::path dir_;
};

EndedChild end_of(pid_t pid) {
  siginfo_t ended;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) == 0);
  auto child = reap_any();
  REQUIRE(child);
  REQUIRE(child->pid == pid);
  return *child;
}

}  // namespace

TEST_CASE("reports an OOM kill, but not a kill by dslaunch", "[spawn][oom_watch]") {
  SmallCgroup cgroup;
  if (!cgroup.there()) {
    WARN("skipped: needs root and a memory cgroup that may be written");
    return;
  }
  ExitDiagnostics explainer;
  OomWatch counters;
  pid_t glutton = ::fork();
  if (glutton == 0) {
    std::ofstream(cgroup.procs()) << ::getpid() << std::flush;
    constexpr size_t kBytes = 256U << 20;
    auto* bytes = static_cast<volatile char*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < kBytes; i += 4096) bytes[i] = 1;
    ::_exit(0);
  }
  EndedChild child = end_of(glutton);
  REQUIRE(child.cause.shell_code() == 137);
  CHECK_THAT(explainer.explain(child.cause, child.pid, child.cgroups),
             Catch::Contains("the kernel killed it because its memory cgroup") && Catch::Contains("micro batch"));
  // Without the kernel's log; version 1 no longer tells the cgroup of a process that has ended.
  CHECK_THAT(counters.explain(child.cgroups), Catch::Contains("because memory ran out"));

  pid_t victim = ::fork();
  if (victim == 0) {
    std::ofstream(cgroup.procs()) << ::getpid() << std::flush;
    ::raise(SIGKILL);
  }
  child = end_of(victim);
  CHECK(explainer.explain(child.cause, child.pid, child.cgroups).empty());
  CHECK(counters.explain(child.cgroups).empty());
}
