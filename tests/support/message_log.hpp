// Collects messages from other threads and waits for them.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::test {

class MessageLog {
 public:
  void add(const std::string& text) {
    std::lock_guard lock(mutex_);
    texts_.push_back(text);
    changed_.notify_all();
  }
  // The first text with `part` in it; nothing when it does not come in time.
  std::optional<std::string> within(std::chrono::milliseconds time, const std::string& part = {}) {
    std::unique_lock lock(mutex_);
    const auto found = [&] {
      return std::find_if(texts_.begin(), texts_.end(),
                          [&](const std::string& text) { return text.find(part) != std::string::npos; });
    };
    changed_.wait_for(lock, time, [&] { return found() != texts_.end(); });
    return found() == texts_.end() ? std::nullopt : std::optional(*found());
  }
  std::string wait_for(const std::string& part) { return within(std::chrono::seconds(30), part).value_or(""); }
  // The first, second, ... text; empty when it does not come in time.
  std::string wait_for_nth(size_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return texts_.size() >= number; });
    return texts_.size() < number ? "" : texts_[number - 1];
  }
  size_t count() {
    std::lock_guard lock(mutex_);
    return texts_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
};

}  // namespace dslaunch::test
