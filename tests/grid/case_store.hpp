// One case's share of a store that many cases use one after the other: the runtime names its keys as if the store were
// new, so each case gets a name space of its own.
#pragma once
#include <string>
#include <utility>

#include "rendezvous/store.hpp"

namespace dslaunch::test {

class CaseStore : public rendezvous::Store {
 public:
  CaseStore(rendezvous::Store& whole, std::string prefix) : whole_(whole), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value, Deadline deadline) override {
    whole_.set(prefix_ + key, value, deadline);
  }
  std::string get(const std::string& key, Deadline deadline) override { return whole_.get(prefix_ + key, deadline); }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return whole_.try_get(prefix_ + key, deadline);
  }
  int64_t add(const std::string& key, int64_t amount, Deadline deadline) override {
    return whole_.add(prefix_ + key, amount, deadline);
  }
  std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                              Deadline deadline) override {
    return whole_.compare_and_set(prefix_ + key, expected, desired, deadline);
  }
  int64_t erase(const std::string& prefix, Deadline deadline) override {
    return whole_.erase(prefix_ + prefix, deadline);
  }
  void barrier(const std::string& name, int count, Deadline deadline) override {
    whole_.barrier(prefix_ + name, count, deadline);
  }
  // A case's end is not the rank's: the pool goes on, and who fails is told by the rank's loop.
  void report_failure(const std::string&) override {}
  void leave() override {}
  void on_peer_lost(std::function<void(const rendezvous::LostRank&)> callback) override {
    whole_.on_peer_lost(std::move(callback));
  }

 private:
  rendezvous::Store& whole_;
  const std::string prefix_;
};

}  // namespace dslaunch::test
