#include "spawn/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "base/exit_code.hpp"
#include "spawn/captured_process.hpp"
#include "support/refused_system_call.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;

namespace {

Process started(ProcessSpec spec) {
  auto result = start_process(spec);
  if (auto* cause = std::get_if<ExitCause>(&result)) FAIL(describe(*cause));
  return std::move(std::get<Process>(result));
}

ExitCause refused(ProcessSpec spec) {
  auto result = start_process(spec);
  REQUIRE(std::holds_alternative<ExitCause>(result));
  return std::get<ExitCause>(result);
}

// Until end of file; the test's own time limit bounds it.
std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    pollfd poll{fd, POLLIN, 0};
    ::poll(&poll, 1, -1);
    ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return text;
    text.append(buffer, got);
  }
}

ExitCause wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return decode_wait_status(status);
}

const std::map<std::string, std::string> kEnv{{"PATH", "/usr/bin:/bin"}};

}  // namespace

TEST_CASE("arguments, environment and directory arrive unchanged", "[spawn][process]") {
  std::string odd = "a b\n'\"$x*\\";
  auto process = started({{"sh", "-c", "printf '%s|%s|%s' \"$1\" \"$ODD\" \"$PWD\"", "sh", odd},
                          {{"PATH", "/usr/bin:/bin"}, {"ODD", odd}},
                          "/usr"});
  CHECK(read_all(process.out.get()) == odd + "|" + odd + "|/usr");
  CHECK(wait_for(process.pid).success());
}

TEST_CASE("the two streams are kept apart and standard input is empty", "[spawn][process]") {
  auto process = started({{"sh", "-c", "cat; echo out; echo err >&2"}, kEnv, ""});
  CHECK(read_all(process.out.get()) == "out\n");
  CHECK(read_all(process.err.get()) == "err\n");
  wait_for(process.pid);
}

TEST_CASE("a process runs on the CPUs that it was given and nowhere else", "[spawn][process]") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  int last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &ours)) last = cpu;
  }
  ProcessSpec spec{{"grep", "Cpus_allowed_list", "/proc/self/status"}, kEnv, ""};
  spec.cpus = {last};
  auto process = started(spec);
  CHECK(read_all(process.out.get()) == "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
  CHECK(wait_for(process.pid).success());
  cpu_set_t after;
  ::sched_getaffinity(0, sizeof after, &after);
  CHECK(CPU_EQUAL(&ours, &after));
}

TEST_CASE("memory comes from the NUMA node that was named", "[spawn][process]") {
  ProcessSpec spec{{"sh", "-c", "read -r _ policy _ < /proc/self/numa_maps && echo $policy"}, kEnv, ""};
  spec.memory_node = 0;
  auto result = start_process(spec);
  if (auto* cause = std::get_if<ExitCause>(&result); cause && cause->hint.find("not permitted") != std::string::npos) {
    WARN("skipped: this container forbids memory policies");
    return;
  }
  auto process = std::move(std::get<Process>(result));
  CHECK(read_all(process.out.get()) == "bind:0\n");
  wait_for(process.pid);
}

TEST_CASE("reports CPUs and memory that the kernel rejects", "[spawn][process]") {
  ProcessSpec spec{{"true"}, kEnv, ""};
  spec.cpus = {8000, 8001};
  auto cause = refused(spec);
  CHECK(cause.kind == ExitCause::Kind::kNotStarted);
  CHECK(cause.number == to_int(ExitCode::kUnavailable));
  CHECK_THAT(cause.hint, Catch::Matchers::Contains("CPUs 8000,8001") && Catch::Matchers::Contains("Invalid argument"));
  spec.cpus = {};
  spec.memory_node = 900;
  cause = refused(spec);
  CHECK(cause.number == to_int(ExitCode::kUnavailable));
  CHECK_THAT(cause.hint, Catch::Matchers::Contains("NUMA node 900"));
}

TEST_CASE("a process leads its own session and group, without our descriptors and signal masks", "[spawn][process]") {
  sigset_t set, before;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  int leak = ::dup(0);  // without close-on-exec
  auto process = started(
      {{"sh", "-c", "cut -d' ' -f1,5,6 /proc/self/stat; grep SigBlk /proc/self/status; ls /proc/self/fd | wc -l"},
       kEnv,
       ""});
  std::string said = read_all(process.out.get());
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(leak);
  wait_for(process.pid);
  CHECK_THAT(said, Catch::Contains(std::to_string(process.pid) + " " + std::to_string(process.pid) + "\n"));
  CHECK_THAT(said, Catch::Contains("SigBlk:\t0000000000000000"));
  CHECK_THAT(said, Catch::EndsWith("\n4\n"));  // 0, 1, 2 and ls's own
}

TEST_CASE("a process gets no descriptors of ours from a kernel that cannot close them at once", "[spawn][process]") {
  const int error = GENERATE(ENOSYS, EINVAL, EPERM);
  CAPTURE(error);
  int leaks[500];  // their names fill several buffers
  for (int& leak : leaks) leak = ::dup(0);
  const int far = ::fcntl(0, F_DUPFD, 1000);
  const UniqueFd wanted(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  CHECK(test::holds_without(SYS_close_range, static_cast<unsigned>(error), [&] {
    ProcessSpec spec{
        {"sh", "-c", "ls /proc/self/fd | wc -l; readlink /proc/self/fd/$0", std::to_string(wanted.get())}, kEnv, ""};
    spec.inherited = wanted.get();
    auto process = started(spec);
    return read_all(process.out.get()) == "5\n/dev/zero\n";  // 0, 1, 2, the wanted one and ls's own
  }));
  for (int leak : leaks) ::close(leak);
  ::close(far);
}

TEST_CASE("a process gets the limit on descriptors from before it was raised", "[spawn][process]") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  raise_descriptor_limit();
  rlimit raised{};
  ::getrlimit(RLIMIT_NOFILE, &raised);
  auto process = started({{"sh", "-c", "ulimit -n"}, kEnv, ""});
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(raised.rlim_cur == before.rlim_max);
  CHECK(read_all(process.out.get()) == std::to_string(before.rlim_cur) + "\n");
  CHECK(wait_for(process.pid).success());
}

TEST_CASE("a missing program is 127 and names it", "[spawn][process]") {
  auto cause = refused({{"no-such-program-here"}, kEnv, ""});
  CHECK(cause.shell_code() == 127);
  CHECK_THAT(cause.hint, Catch::Contains("no-such-program-here") && Catch::Contains("PATH"));
  CHECK(refused({{"/no/such/file"}, kEnv, ""}).shell_code() == 127);
  test::TempDir dir;
  dir.write("train.sh", "");
  CHECK_THAT(refused({{dir / "trian.sh"}, kEnv, ""}).hint,
             Catch::Contains("did you mean '" + (dir / "train.sh") + "'?"));
  CHECK(refused({{""}, kEnv, ""}).shell_code() == 127);
}

TEST_CASE("a file that is not executable is 126 and says why", "[spawn][process]") {
  test::TempDir dir;
  auto plain = dir.write("plain", "#!/bin/sh\n");
  CHECK(refused({{plain}, kEnv, ""}).shell_code() == 126);
  CHECK(refused({{dir.path()}, kEnv, ""}).shell_code() == 126);
  auto garbage = dir.write("garbage", std::string("\0\1\2", 3));
  std::filesystem::permissions(garbage, std::filesystem::perms::owner_all);
  CHECK(refused({{garbage}, kEnv, ""}).shell_code() == 126);
  auto orphan = dir.write("orphan", "#!/no/such/interpreter\n");
  std::filesystem::permissions(orphan, std::filesystem::perms::owner_all);
  CHECK_THAT(refused({{orphan}, kEnv, ""}).hint, Catch::Contains("interpreter"));
}

TEST_CASE("an inaccessible directory is 126 and named", "[spawn][process]") {
  auto cause = refused({{"true"}, kEnv, "/no/such/folder"});
  CHECK(cause.shell_code() == 126);
  CHECK_THAT(cause.hint, Catch::Contains("/no/such/folder"));
}

TEST_CASE("a signal reaches the whole group", "[spawn][process]") {
  auto process = started({{"sh", "-c", "sleep 1000 & echo $!; wait"}, kEnv, ""});
  char line[32] = {};
  pollfd poll{process.out.get(), POLLIN, 0};
  ::poll(&poll, 1, -1);
  REQUIRE(::read(process.out.get(), line, sizeof line) > 0);
  signal_group(process, SIGKILL);
  CHECK(wait_for(process.pid).shell_code() == 137);
  // The sleeper held the pipe's other end: its end is the end of the stream.
  CHECK(read_all(process.out.get()).empty());
}

TEST_CASE("children die with the process that started them", "[spawn][process]") {
  int pipe_fds[2];
  REQUIRE(::pipe(pipe_fds) == 0);
  pid_t agent = ::fork();
  if (agent == 0) {
    auto result = start_process({{"sleep", "1000"}, kEnv, ""});
    pid_t pid = std::get<Process>(result).pid;
    [[maybe_unused]] auto wrote = ::write(pipe_fds[1], &pid, sizeof pid);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t sleeper = -1;
  REQUIRE(::read(pipe_fds[0], &sleeper, sizeof sleeper) == sizeof sleeper);
  ::waitpid(agent, nullptr, 0);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  auto alive = [&] {
    std::ifstream stat("/proc/" + std::to_string(sleeper) + "/stat");
    std::string pid, name, state;
    return static_cast<bool>(stat >> pid >> name >> state) && state != "Z";
  };
  while (alive() && std::chrono::steady_clock::now() < deadline) ::poll(nullptr, 0, 1);
  CHECK_FALSE(alive());
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST_CASE("what a program prints is captured, and its input need not be read", "[spawn][process]") {
  const std::string input(1 << 20, 'x');
  const auto counted = run_captured({"/bin/sh", "-c", "wc -c; echo why >&2; exit 3"}, input, /*captures_err=*/true);
  CHECK(counted.cause == ExitCause{ExitCause::Kind::kExited, 3});
  CHECK(counted.out == "1048576\n");
  CHECK(counted.err == "why\n");
  CHECK(run_captured({"/bin/true"}, input, true).cause.success());
  const auto absent = run_captured({"/nowhere/program"}, "", true).cause;
  CHECK(absent.kind == ExitCause::Kind::kNotStarted);
  CHECK(absent.shell_code() == 127);
}
