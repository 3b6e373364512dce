#include "spawn/stuck_process.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "base/unique_fd.hpp"
#include "ports/process_info.hpp"
#include "spawn/pipe.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;
using namespace std::chrono_literals;

namespace {

// A child that does this, from when it has said so.
template <class Body>
pid_t child(Body&& body) {
  Pipe ready = make_pipe("for a test");
  const pid_t pid = ::fork();
  if (pid == 0) {
    body([&] { ready.write.reset(); });
    ::_exit(0);
  }
  ready.write.reset();
  pollfd poll{ready.read.get(), POLLIN, 0};
  ::poll(&poll, 1, -1);
  return pid;
}

void await_state(pid_t pid, char state) {
  for (auto stat = ports::read_process_stat(pid); stat && stat->state != state; stat = ports::read_process_stat(pid)) {
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

TEST_CASE("describes the state of a process that exists, and nothing of one that has ended", "[spawn][stuck_process]") {
  const pid_t pid = child([](auto ready) {
    ready();
    ::pause();
  });
  await_state(pid, 'S');
  const auto stuck = inspect_stuck(pid);
  REQUIRE(stuck);
  CHECK((stuck->pid == pid && stuck->state == 'S'));
  CHECK(stuck->start_ticks == ports::read_process_stat(pid)->start_ticks);
  ::kill(pid, SIGKILL);
  await_state(pid, 'Z');
  CHECK_FALSE(inspect_stuck(pid));
  ::waitpid(pid, nullptr, 0);
  CHECK_FALSE(inspect_stuck(pid));
}

TEST_CASE("a process whose first thread has ended is alive while another thread runs", "[spawn][stuck_process]") {
  const pid_t pid = child([](auto ready) {
    std::thread([] { ::pause(); }).detach();
    ready();
    ::syscall(SYS_exit, 0);  // this thread alone, without unwinding into the test's program
  });
  await_state(pid, 'Z');
  auto stuck = inspect_stuck(pid);
  for (; stuck && stuck->state == 'R'; stuck = inspect_stuck(pid))
    std::this_thread::sleep_for(1ms);  // not in pause() yet
  REQUIRE(stuck);
  CHECK((stuck->pid == pid && stuck->state == 'S'));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("a stuck process is described with its state and wait channel", "[spawn][stuck_process]") {
  CHECK_THAT(
      describe({4711, 1, 'D', "rpc_wait_bit"}),
      Catch::StartsWith("process 4711 is stuck in the kernel (state D, wait channel rpc_wait_bit) and does not end"));
  CHECK_THAT(describe({4711, 1, 'D', ""}), Catch::StartsWith("process 4711 is stuck in the kernel (state D) and"));
  CHECK(describe({4711, 1, 'R', ""}) == "process 4711 has not ended after SIGKILL (state R)");
}
