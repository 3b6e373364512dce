// The ranks of a mesh as threads of this process, each with its groups.
#pragma once
#include <algorithm>
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

 private:
  struct Known {
    std::shared_ptr<ThreadGroup> group;
    std::vector<int> ranks;
  };
  std::mutex mutex_;
  std::map<std::string, Known> groups_;
};

// Runs `body` once for each rank, all at the same time. It must not throw: the other ranks would wait for ever.
inline void run_mesh(const comm::Mesh& mesh, const std::function<void(const comm::Groups&)>& body) {
  ThreadGroups groups;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    threads.emplace_back([&, rank] {
      comm::OwnedGroups own;
      own.open(mesh, rank, [&](const auto& name, const auto& ranks) { return groups.join(name, ranks, rank); });
      body(own.groups());
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace dslaunch::test
