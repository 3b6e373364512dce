// The ranks of a mesh as threads of this process, each with its groups.
#pragma once
#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/groups.hpp"
#include "support/thread_communicator.hpp"

namespace dslaunch::test {

// The thread groups of a mesh by name: the first member to ask creates one.
class ThreadGroups {
 public:
  std::unique_ptr<comm::Communicator> join(const std::string& name, const std::vector<int>& ranks, int rank) {
    const std::lock_guard lock(mutex_);
    auto& known = groups_[name];
    if (!known.group) known = {std::make_shared<ThreadGroup>(static_cast<int>(ranks.size())), ranks};
    if (known.ranks != ranks) throw std::logic_error("two groups of different ranks are both called " + name);
    const auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return std::make_unique<ThreadCommunicator>(known.group, static_cast<int>(position));
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    for (auto& [name, known] : groups_) known.group->abort();
  }

 private:
  struct Known {
    std::shared_ptr<ThreadGroup> group;
    std::vector<int> ranks;
  };
  std::mutex mutex_;
  std::map<std::string, Known> groups_;
};

// Runs `body` once for each rank, all at the same time. When a rank throws, the collectives of the others throw
// PeerError. Returns what each rank threw, in rank order; null: nothing.
inline std::vector<std::exception_ptr> end_mesh(const comm::Mesh& mesh,
                                                const std::function<void(const comm::Groups&)>& body) {
  ThreadGroups groups;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(mesh.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        comm::OwnedGroups own;
        own.open(mesh, rank, [&](const auto& name, const auto& ranks) { return groups.join(name, ranks, rank); });
        body(own.groups());
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
        groups.abort();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return failures;
}

// As end_mesh(), but throws what a rank threw, rather the cause than its echo on another rank.
inline void run_mesh(const comm::Mesh& mesh, const std::function<void(const comm::Groups&)>& body) {
  std::exception_ptr echo;
  for (const auto& failure : end_mesh(mesh, body)) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const PeerError&) {
      echo = failure;
    }
  }
  if (echo) std::rethrow_exception(echo);
}

}  // namespace dslaunch::test
