// Lets another thread go on step by step.
#pragma once
#include <condition_variable>
#include <mutex>

namespace dslaunch::test {

class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_open_ > 0; });
    --num_open_;
  }
  void open(int times) {
    {
      const std::lock_guard lock(mutex_);
      num_open_ += times;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_open_ = 0;
};

}  // namespace dslaunch::test
