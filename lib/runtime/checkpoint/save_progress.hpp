// The current activity of a save in the background: set by its thread, read by the thread that waits for it.
#pragma once
#include <mutex>
#include <string>
#include <utility>

namespace dslaunch::runtime {

class SaveProgress {
 public:
  // Text that continues "the run stands still for the checkpoint of step 20:"; empty: another rank reports it.
  void set(std::string words) {
    std::lock_guard lock(mutex_);
    words_ = std::move(words);
  }
  std::string words() const {
    std::lock_guard lock(mutex_);
    return words_;
  }

 private:
  mutable std::mutex mutex_;
  std::string words_;
};

}  // namespace dslaunch::runtime
