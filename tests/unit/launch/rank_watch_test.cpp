#include "launch/agent/rank_watch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

#include "launch/agent/idle_window.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

constexpr IdleWindow::Time kStart{1000s};

// Looks as the agent does, with CPU time that is handed in.
bool is_idle_after(IdleWindow& window, std::chrono::seconds time, std::chrono::milliseconds use_a_look) {
  for (auto at = 2s; at <= time; at += 2s) window.add(kStart + at, use_a_look);
  return window.is_idle(kStart + time);
}

// A process in a session of its own, as a rank; ended and reaped by the destructor.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::setsid();
    body();
    ::_exit(0);
  }
  ~Child() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  const pid_t pid_;
};

void spin() {
  for (volatile bool on = true; on;) {
  }
}

uint64_t ticks_of(pid_t pid) {
  return ports::read_process_stat(pid)->cpu_ticks;
}

// All that changed in the looks of 30 s, in which the processes really live for a moment only.
std::vector<RankActivity> look_for_30_s(RankWatch& watch) {
  std::vector<RankActivity> all;
  for (auto at = 2s; at <= 30s; at += 2s) {
    for (const auto& each : watch.check(kStart + at)) all.push_back(each);
  }
  return all;
}

}  // namespace

TEST_CASE("idle is less than 1 % of a core for 20 s", "[launch][rank_watch]") {
  IdleWindow window(kStart);
  CHECK_FALSE(is_idle_after(window, 18s, 0ms));
  CHECK(is_idle_after(window, 20s, 0ms));
  IdleWindow little(kStart), more(kStart);
  CHECK(is_idle_after(little, 40s, 10ms));
  CHECK_FALSE(is_idle_after(more, 40s, 20ms));
}

TEST_CASE("a rank that has computed is idle 20 s later", "[launch][rank_watch]") {
  IdleWindow window(kStart);
  CHECK_FALSE(is_idle_after(window, 60s, 2000ms));
  for (auto at = 62s; at < 80s; at += 2s) {
    window.add(kStart + at, 0ms);
    CHECK_FALSE(window.is_idle(kStart + at));
  }
  window.add(kStart + 80s, 0ms);
  CHECK(window.is_idle(kStart + 80s));
}

TEST_CASE("a rank that prints is not idle", "[launch][rank_watch]") {
  IdleWindow window(kStart);
  CHECK(is_idle_after(window, 30s, 0ms));
  window.restart(kStart + 31s);
  CHECK_FALSE(window.is_idle(kStart + 32s));
  CHECK(window.is_idle(kStart + 51s));
}

TEST_CASE("sleeping and stopped ranks are reported once, with the process", "[launch][rank_watch]") {
  const Child sleeps([] { ::pause(); }), stopped([] { ::pause(); });
  stopped.stop();
  RankWatch watch;
  watch.add(4, sleeps.pid(), kStart);
  watch.add(5, stopped.pid(), kStart);
  CHECK(look_for_30_s(watch) ==
        std::vector<RankActivity>{{4, RankState::kIdle, 0}, {5, RankState::kStopped, stopped.pid()}});
  watch.on_output(4, kStart + 31s);
  CHECK(watch.check(kStart + 32s) == std::vector<RankActivity>{{4, RankState::kBusy, 0}});
}

TEST_CASE("a rank whose child computes is busy", "[launch][rank_watch]") {
  int numbers[2];
  REQUIRE(::pipe(numbers) == 0);
  const Child waits([&] {
    const pid_t computes = ::fork();
    if (computes == 0) spin();
    [[maybe_unused]] const auto written = ::write(numbers[1], &computes, sizeof computes);
    ::pause();
  });
  pid_t computes = -1;
  REQUIRE(::read(numbers[0], &computes, sizeof computes) == sizeof computes);
  ::close(numbers[0]);
  ::close(numbers[1]);
  RankWatch watch;
  watch.add(0, waits.pid(), kStart);
  watch.check(kStart + 2s);
  // Half a second in the eyes of the watch is 20 s: what it used is more than 1 % of that.
  for (const uint64_t begin = ticks_of(computes); ticks_of(computes) < begin + 30;) {
  }
  for (auto at = 4s; at <= 22s; at += 2s) CHECK(watch.check(kStart + at).empty());
}

TEST_CASE("a rank that has ended is not checked", "[launch][rank_watch]") {
  const Child sleeps([] { ::pause(); });
  RankWatch watch;
  watch.add(0, sleeps.pid(), kStart);
  CHECK_FALSE(watch.next_check().is_never());
  watch.remove(0);
  CHECK(watch.next_check().is_never());
}

TEST_CASE("after a gap between two checks no rank is idle for a while", "[launch][rank_watch]") {
  const Child sleeps([] { ::pause(); });
  RankWatch watch;
  watch.add(0, sleeps.pid(), kStart);
  watch.check(kStart + 2s);
  CHECK(watch.check(kStart + 300s).empty());
}
