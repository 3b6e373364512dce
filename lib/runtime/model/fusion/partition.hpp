// Groups of items that can each run as one: convex, so that no item outside depends on a group and a group on it. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch::runtime::model::fusion {

struct PartitionItem {
  std::vector<size_t> inputs;        // earlier items
  std::optional<int64_t> kind = {};  // items of one kind may share a group; without a kind an item stays alone
};

// The group of each item, numbered by their first members; greedy in the order of the items, each group grows along its
// edges as far as it stays convex.
std::vector<size_t> partition(const std::vector<PartitionItem>& items);

}  // namespace dslaunch::runtime::model::fusion
