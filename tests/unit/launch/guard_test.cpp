#include "launch/agent/guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "ports/process_info.hpp"
#include "spawn/held_process.hpp"

using namespace dslaunch;

namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
  UniqueFd read, write;
};

constexpr int kContinued = 7;

// An agent that stops itself, and ends once it is continued and sees that its launcher is gone.
[[noreturn]] void be_agent(const UniqueFd& news) {
  const pid_t own = ::getpid();
  [[maybe_unused]] auto written = ::write(news.get(), &own, sizeof own);
  std::raise(SIGSTOP);
  pollfd launcher{STDIN_FILENO, 0, 0};
  ::poll(&launcher, 1, 20'000);
  ::_exit((launcher.revents & POLLHUP) != 0 ? kContinued : 1);
}

bool is_stopped(pid_t pid) {
  const auto stat = ports::read_process_stat(pid);
  return stat && stat->state == 'T';
}

}  // namespace

TEST_CASE("the guard continues a stopped agent once the launcher is gone", "[launch][guard]") {
  Pipe channel, news;
  const pid_t guard = ::fork();
  if (guard == 0) {
    ::dup2(channel.read.get(), STDIN_FILENO);
    channel.write.reset();
    launch::put_under_guard(std::chrono::milliseconds(0));
    be_agent(news.write);
  }
  pid_t agent = -1;
  REQUIRE(::read(news.read.get(), &agent, sizeof agent) == sizeof agent);
  while (!is_stopped(agent)) ::sched_yield();
  auto held = spawn::HeldProcess::hold(guard);
  REQUIRE(held);
  REQUIRE(::write(channel.write.get(), "x", 1) == 1);  // which is not the launcher's end
  channel.write.reset();
  spawn::wait_for_an_end({&*held}, Deadline::after(std::chrono::seconds(20)));
  const bool has_ended = held->has_ended();
  if (!has_ended) ::kill(agent, SIGKILL);
  int status = 0;
  ::waitpid(guard, &status, 0);
  CHECK(has_ended);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kContinued);
}
