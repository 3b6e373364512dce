#include "runtime/sharding/hierarchical_gather.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {

std::optional<HpzGroup> hpz_group(int rank, int num_ranks, int64_t partition_size) {
  DSL_CHECK(num_ranks >= 1 && partition_size >= 1, "a group has at least one rank");
  if (num_ranks % partition_size != 0) {
    throw UserError(
        ExitCode::kContradiction,
        fmt::format("zero_hpz_partition_size {} does not divide the {} data-parallel ranks; use the number of "
                    "ranks of a host",
                    partition_size, num_ranks));
  }
  if (partition_size == 1 || partition_size == num_ranks) return std::nullopt;
  const int size = static_cast<int>(partition_size);  // it divides an int
  return HpzGroup{rank / size, rank % size, size};
}

}  // namespace dslaunch::runtime
