// What a save in the background is at: set by its thread, asked by the one that waits for it.
#pragma once
#include <mutex>
#include <string>
#include <utility>

namespace dslaunch::runtime {

class SaveProgress {
 public:
  // In words that go on after "the run stands still for the checkpoint of step 20:"; empty: that is another rank's to
  // tell.
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
