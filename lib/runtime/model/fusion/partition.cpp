#include "runtime/model/fusion/partition.hpp"

#include <algorithm>
#include <numeric>

namespace dslaunch::runtime::model::fusion {
namespace {

class Partition {
 public:
  explicit Partition(const std::vector<PartitionItem>& items)
      : items_(items), users_(items.size()), group_(items.size()), members_(items.size()) {
    std::iota(group_.begin(), group_.end(), size_t{0});
    for (size_t i = 0; i < items.size(); ++i) members_[i] = {i};
  }

  std::vector<size_t> run() {
    for (size_t i = 0; i < items_.size(); ++i) {
      for (const size_t input : items_[i].inputs) users_[input].push_back(i);
      if (!items_[i].kind) continue;
      auto inputs = items_[i].inputs;
      std::sort(inputs.rbegin(), inputs.rend());  // the latest first
      for (const size_t input : inputs) {
        if (items_[input].kind == items_[i].kind && group_[input] != group_[i] && can_join(group_[input], group_[i])) {
          join(group_[input], group_[i]);
        }
      }
    }
    return group_;
  }

 private:
  // Whether what depends on the two groups together, and is in neither, stays apart from what they depend on.
  bool can_join(size_t a, size_t b) const {
    std::vector<bool> seen(items_.size());
    std::vector<size_t> open;  // groups
    const auto visit_users = [&](size_t group, bool is_start) {
      for (const size_t member : members_[group]) {
        for (const size_t user : users_[member]) {
          const size_t next = group_[user];
          if (is_start && (next == a || next == b)) continue;
          if (seen[next]) continue;
          seen[next] = true;
          open.push_back(next);
        }
      }
    };
    visit_users(a, true);
    visit_users(b, true);
    while (!open.empty()) {
      const size_t group = open.back();
      open.pop_back();
      if (group == a || group == b) return false;
      visit_users(group, false);
    }
    return true;
  }

  void join(size_t a, size_t b) {
    const size_t to = std::min(a, b), from = std::max(a, b);
    for (const size_t member : members_[from]) {
      group_[member] = to;
      members_[to].push_back(member);
    }
    members_[from].clear();
  }

  const std::vector<PartitionItem>& items_;
  std::vector<std::vector<size_t>> users_;    // among the items so far
  std::vector<size_t> group_;                 // by item; a group has the number of its first member
  std::vector<std::vector<size_t>> members_;  // by group
};

}  // namespace

std::vector<size_t> partition(const std::vector<PartitionItem>& items) {
  return Partition(items).run();
}

}  // namespace dslaunch::runtime::model::fusion
