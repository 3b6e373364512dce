#include "runtime/sharding/hierarchical_gather.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {

HierarchicalGather::HierarchicalGather(int num_ranks, int group_size) : num_ranks_(num_ranks), group_size_(group_size) {
  DSL_CHECK(num_ranks >= 1 && group_size >= 1, "a group has at least one rank");
  if (num_ranks % group_size == 0) return;
  throw UserError(
      ExitCode::kContradiction,
      fmt::format("zero_hpz_partition_size {} does not divide the {} data-parallel ranks; use the number of "
                  "ranks of a host",
                  group_size, num_ranks));
}

std::vector<int> HierarchicalGather::members(int rank) const {
  std::vector<int> out;
  const int first = group_of(rank) * group_size_;
  for (int member = first; member < first + group_size_; ++member) out.push_back(member);
  return out;
}

Range HierarchicalGather::primary(const FlatGroup& group, int rank) const {
  return shard_range(group, rank, num_ranks_);
}

Range HierarchicalGather::secondary(const FlatGroup& group, int rank) const {
  return is_on() ? shard_range(group, index_in_group(rank), group_size_) : primary(group, rank);
}

int64_t HierarchicalGather::extra_numel(const FlatGroup& group) const {
  return is_on() ? group.padded_numel / group_size_ : 0;
}

}  // namespace dslaunch::runtime
