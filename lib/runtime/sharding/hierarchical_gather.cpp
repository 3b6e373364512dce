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

}  // namespace dslaunch::runtime
