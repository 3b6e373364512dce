// A store among threads of one process, with the deadlines of the real one.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::test {

class MemoryStore : public rendezvous::Store {
 public:
  void set(const std::string& key, const std::string& value, Deadline deadline) override {
    std::lock_guard lock(mutex_);
    if (deadline.passed()) throw TimeoutError("no answer in time: set of '" + key + "'");
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.when(), [&] { return values_.count(key) > 0; })) {
      throw TimeoutError("no value for '" + key + "'");
    }
    return values_[key];
  }
  std::optional<std::string> try_get(const std::string& key, Deadline) override {
    std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t add(const std::string& key, int64_t amount, Deadline) override {
    std::lock_guard lock(mutex_);
    const int64_t value = (values_.count(key) ? std::stoll(values_[key]) : 0) + amount;
    values_[key] = std::to_string(value);
    changed_.notify_all();
    return value;
  }
  std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                              Deadline) override {
    std::lock_guard lock(mutex_);
    if (values_[key] == expected) values_[key] = desired;
    changed_.notify_all();
    return values_[key];
  }
  int64_t erase(const std::string& prefix, Deadline) override {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(std::erase_if(values_, [&](const auto& at) { return at.first.starts_with(prefix); }));
  }
  size_t num_keys() {
    std::lock_guard lock(mutex_);
    return values_.size();
  }
  void barrier(const std::string& name, int count, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const int64_t round = arrived_[name]++ / count;
    changed_.notify_all();
    if (!changed_.wait_until(lock, deadline.when(), [&] { return arrived_[name] >= (round + 1) * count; })) {
      arrived_[name] -= 1;
      throw TimeoutError("barrier '" + name + "'");
    }
  }
  void report_failure(const std::string&) override {}
  void leave() override {}
  void on_peer_lost(std::function<void(const rendezvous::LostRank&)>) override {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> arrived_;
};

}  // namespace dslaunch::test
