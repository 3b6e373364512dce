#include "runtime/state/parallel_ranges.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/state/thread_team.hpp"

using dslaunch::runtime::parallel_ranges;

namespace {

class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

}  // namespace

TEST_CASE("a loop is split among LibTorch's threads, every element once", "[state][parallel_ranges]") {
  const Threads four(4);
  std::mutex mutex;
  int64_t shortest = 1003;
  std::set<std::thread::id> threads;
  std::set<int> numbers;
  std::vector<int> visits(1003);
  parallel_ranges(1003, 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    std::lock_guard lock(mutex);
    shortest = std::min(shortest, end - begin);
    threads.insert(std::this_thread::get_id());
    numbers.insert(at::get_thread_num());
  });
  CHECK(visits == std::vector<int>(1003, 1));
  CHECK(shortest >= 10);
  CHECK(threads.size() == 4);
  CHECK(numbers == std::set<int>{0, 1, 2, 3});
}

TEST_CASE("what is too short, or within another loop, is done by one thread", "[state][parallel_ranges]") {
  const Threads four(4);
  int calls = 0;
  parallel_ranges(10, 10, [&](int64_t begin, int64_t end) {
    ++calls;
    CHECK((begin == 0 && end == 10));
  });
  parallel_ranges(0, 10, [&](int64_t, int64_t) { ++calls; });
  CHECK(calls == 1);
  std::vector<int> inner_calls(4);
  parallel_ranges(4, 1, [&](int64_t outer, int64_t) {
    parallel_ranges(100, 1, [&](int64_t, int64_t) { ++inner_calls[static_cast<size_t>(outer)]; });
  });
  CHECK(inner_calls == std::vector<int>(4, 1));
}

TEST_CASE("an exception of one range comes out when all have ended", "[state][parallel_ranges]") {
  const Threads four(4);
  auto throws_in_one = [](int64_t begin, int64_t) {
    if (begin == 50) throw std::runtime_error("range at 50");
  };
  CHECK_THROWS_WITH(parallel_ranges(100, 1, throws_in_one), "range at 50");
}

TEST_CASE("within a team's scope the team takes the loop", "[state][parallel_ranges]") {
  const Threads one(1);
  dslaunch::runtime::ThreadTeam team(2);
  const auto num_threads = [] {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::vector<int> inner_calls(2);
    std::latch both_work(2);
    parallel_ranges(2, 1, [&](int64_t begin, int64_t end) {
      if (end - begin == 1) both_work.arrive_and_wait();
      parallel_ranges(100, 1, [&](int64_t, int64_t) { ++inner_calls[static_cast<size_t>(begin)]; });
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    CHECK(*std::max_element(inner_calls.begin(), inner_calls.end()) == 1);  // a loop within a loop is serial
    return threads.size();
  };
  CHECK(num_threads() == 1);
  {
    const dslaunch::runtime::ThreadTeam::Scope scope(team);
    CHECK(num_threads() == 2);
  }
  CHECK(num_threads() == 1);
}
