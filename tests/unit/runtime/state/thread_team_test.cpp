#include "runtime/state/thread_team.hpp"

#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

using dslaunch::runtime::ThreadTeam;

TEST_CASE("a team's threads share a loop, every element once", "[state][thread_team]") {
  ThreadTeam team(4);
  CHECK(team.size() == 4);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> visits(1003);
    std::mutex mutex;
    std::set<std::thread::id> threads;
    int64_t shortest = 1003;
    std::latch all_work(4);  // passed by four threads that have a range each
    team.run(1003, 300, [&](int64_t begin, int64_t end) {
      all_work.arrive_and_wait();
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      if (end < 1003) shortest = std::min(shortest, end - begin);
    });
    CHECK(visits == std::vector<int>(1003, 1));
    CHECK(threads.size() == 4);
    CHECK(shortest >= 300);
  }
}

TEST_CASE("a team of one, a short loop and no loop need no other thread", "[state][thread_team]") {
  ThreadTeam alone(1), three(3);
  int calls = 0;
  const auto whole = [&](int64_t begin, int64_t end) {
    CHECK((begin == 0 && end == 10));
    ++calls;
  };
  alone.run(10, 10, whole);
  three.run(10, 10, whole);
  three.run(0, 10, whole);
  CHECK(calls == 2);
}

TEST_CASE("an exception of a range leaves the rest out and comes out of run()", "[state][thread_team]") {
  ThreadTeam team(3);
  std::mutex mutex;
  int64_t last = 0;
  const auto throws_at_5 = [&](int64_t begin, int64_t) {
    const std::lock_guard lock(mutex);
    last = std::max(last, begin);
    if (begin >= 5) throw std::runtime_error("range at 5");
  };
  CHECK_THROWS_WITH(team.run(1'000'000'000'000, 1, [&](int64_t, int64_t) { throw std::runtime_error("first"); }),
                    "first");
  CHECK_THROWS_WITH(team.run(100, 1, throws_at_5), "range at 5");
  CHECK(last <= 5 + 3);
  int64_t sum = 0;  // the team is as good as before
  team.run(100, 1, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  CHECK(sum == 4950);
}

TEST_CASE("a team stays on the cores of the thread that made it", "[state][thread_team]") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  ThreadTeam team(3);
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  std::mutex mutex;
  std::set<int> others;  // how many cores each of the other threads may use
  const auto caller = std::this_thread::get_id();
  std::latch all_work(3);
  team.run(3, 1, [&](int64_t, int64_t) {
    all_work.arrive_and_wait();
    if (std::this_thread::get_id() == caller) return;
    cpu_set_t own;
    ::sched_getaffinity(0, sizeof own, &own);
    const std::lock_guard lock(mutex);
    others.insert(CPU_COUNT(&own));
    others.insert(CPU_ISSET(core, &own) ? 1 : -1);
  });
  CHECK(others == std::set<int>{1});
}
