#include "runtime/sharding/hierarchical_gather.hpp"

#include "base/error.hpp"
#include "config/data_ranks.hpp"

namespace dslaunch::runtime {

std::optional<HpzGroup> hpz_group(int rank, int num_ranks, int64_t partition_size) {
  DSL_CHECK(num_ranks >= 1 && partition_size >= 1, "a group has at least one rank");
  if (const auto divides = config::check_hpz_partition(partition_size, num_ranks); !divides.ok()) {
    throw UserError(ExitCode::kContradiction, divides.error());
  }
  if (partition_size == 1 || partition_size == num_ranks) return std::nullopt;
  const int size = static_cast<int>(partition_size);  // it divides an int
  return HpzGroup{rank / size, rank % size, size};
}

}  // namespace dslaunch::runtime
