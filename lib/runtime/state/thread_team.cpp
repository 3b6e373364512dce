#include "runtime/state/thread_team.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

// Enough that a thread which loses its core for a while leaves little work behind.
constexpr int64_t kRangesPerThread = 64;

// Waking a thread takes about as long as a short loop, and loops often follow one another at once.
constexpr auto kSpinTime = std::chrono::microseconds(100);

template <class Condition>
void spin_until(Condition&& is_met) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (!is_met() && std::chrono::steady_clock::now() < end) __builtin_ia32_pause();
}

thread_local ThreadTeam* team_of_this_thread = nullptr;
thread_local bool is_at_work = false;

}  // namespace

struct ThreadTeam::Loop {
  const int64_t count, range;
  const std::function<void(int64_t, int64_t)>& work;
  std::atomic<int64_t> next{0};
  std::atomic_flag has_failed{};
  std::exception_ptr failure{};
};

ThreadTeam::ThreadTeam(int num_threads) {
  DSL_CHECK(num_threads >= 1, "a team has at least one thread");
  try {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { run_thread(); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  stop();
}

// The threads end, and are joined with their vector.
void ThreadTeam::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
}

void ThreadTeam::take_ranges(Loop& loop) {
  is_at_work = true;
  for (int64_t begin = 0; (begin = loop.next.fetch_add(loop.range)) < loop.count;) {
    try {
      loop.work(begin, std::min(loop.count, begin + loop.range));
    } catch (...) {
      loop.next = loop.count;
      if (!loop.has_failed.test_and_set()) loop.failure = std::current_exception();
    }
  }
  is_at_work = false;
}

void ThreadTeam::run(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work) {
  if (count <= 0) return;
  const int64_t ranges = size() * kRangesPerThread;
  Loop loop{.count = count, .range = std::max(grain, (count + ranges - 1) / ranges), .work = work};
  if (!threads_.empty() && count > loop.range) {
    const std::lock_guard lock(mutex_);
    loop_ = &loop;
    ++num_loops_;
    changed_.notify_all();
  }
  take_ranges(loop);
  {
    std::unique_lock lock(mutex_);
    loop_ = nullptr;  // a thread that wakes up now finds nothing to join
    lock.unlock();
    spin_until([&] { return num_working_ == 0; });
    lock.lock();
    idle_.wait(lock, [&] { return num_working_ == 0; });
  }
  if (loop.failure) std::rethrow_exception(loop.failure);
}

void ThreadTeam::run_thread() {
  std::unique_lock lock(mutex_, std::defer_lock);
  for (uint64_t num_seen = 0;;) {
    spin_until([&] { return num_loops_ != num_seen; });
    lock.lock();
    changed_.wait(lock, [&] { return is_stopping_ || (loop_ != nullptr && num_loops_ != num_seen); });
    if (is_stopping_) return;
    num_seen = num_loops_;
    Loop& loop = *loop_;
    ++num_working_;
    lock.unlock();
    take_ranges(loop);
    lock.lock();
    if (--num_working_ == 0) idle_.notify_one();
    lock.unlock();
  }
}

ThreadTeam::Scope::Scope(ThreadTeam& team) : before_(team_of_this_thread) {
  team_of_this_thread = &team;
}

ThreadTeam::Scope::~Scope() {
  team_of_this_thread = before_;
}

ThreadTeam* ThreadTeam::of_this_thread() {
  return team_of_this_thread;
}

bool ThreadTeam::is_in_loop() {
  return is_at_work;
}

}  // namespace dslaunch::runtime
