// Threads that share loops over host memory, for work beside the training step, such as the update of offloaded
// optimizer state. A team's threads sleep between loops, except for the first moments after one, and have nothing to do
// with LibTorch's, whose number and work belong to the step. Nothing of LibTorch.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dslaunch::runtime {

class ThreadTeam {
 public:
  // `num_threads` (at least 1) includes the thread that calls run(). The others run where the constructor's thread may
  // run, so they stay on the cores and the NUMA node that a rank is bound to. Throws std::system_error if the system
  // refuses a thread.
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls `work` for ranges of at least `grain` elements, except the last, that cover [0, count); returns when all have
  // finished. Threads take the next range when they are free, so a core that is busy elsewhere does not hold up the
  // others. Rethrows the first exception of a range; then ranges that have not begun are left out. One thread at a
  // time, and not from within `work`.
  void run(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work);

  // During its lifetime, parallel_ranges() on this thread uses the team instead of LibTorch's threads.
  class Scope {
   public:
    explicit Scope(ThreadTeam& team);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ThreadTeam* const before_;
  };
  // The team of the innermost Scope on this thread, or null.
  static ThreadTeam* of_this_thread();
  // Whether this thread is at work on a range of any team.
  static bool is_in_loop();

 private:
  struct Loop;
  static void take_ranges(Loop& loop);
  void stop();
  void run_thread();

  // guarded by mutex_; atomic where it is read without
  std::mutex mutex_;
  std::condition_variable changed_;  // a loop has begun, or the team ends
  std::condition_variable idle_;     // no thread works on the loop any more
  Loop* loop_ = nullptr;             // may be joined
  std::atomic<uint64_t> num_loops_ = 0;
  std::atomic<int> num_working_ = 0;
  bool is_stopping_ = false;
  // fixed after construction
  std::vector<std::jthread> threads_;
};

}  // namespace dslaunch::runtime
