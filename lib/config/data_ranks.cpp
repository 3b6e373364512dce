#include "config/data_ranks.hpp"

#include <string>

#include "base/format.hpp"

namespace dslaunch::config {
namespace {

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "4", "4 or 8"; 0 stands for none.
std::string either(int64_t below, int64_t above) {
  if (below == 0 || above == 0) return std::to_string(below + above);
  return fmt::format("{} or {}", below, above);
}

// The numbers next to `wanted` that divide the world, of which each takes `others` ranks; empty if `others` alone do
// not.
std::string possible(int world_size, int64_t wanted, int64_t others) {
  if (world_size % others != 0) return {};
  const int64_t most = world_size / others;
  int64_t below = 0, above = 0;
  for (int64_t count = 1; count <= most; ++count) {
    if (most % count != 0) continue;
    if (count < wanted) below = count;
    if (count > wanted && above == 0) above = count;
  }
  return either(below, above);
}

// ", or set KEY (FLAG) to N or M"; empty if there is no such number.
std::string proposal(const char* key, const std::string& numbers) {
  return numbers.empty() ? "" : fmt::format(", or set {} to {}", key, numbers);
}

}  // namespace

Result<int> solve_data_ranks(int world_size, int64_t stages, int64_t tensor) {
  const int64_t model = stages * tensor;
  if (world_size % model == 0) return static_cast<int>(world_size / model);
  const std::string other_stages = possible(world_size, stages, tensor),
                    other_tensor = tensor > 1 ? possible(world_size, tensor, stages) : "";
  return Failure{fmt::format(
      "cannot divide the job into models: {}: one model takes {} ({} x {}); start a multiple of {} ranks, as "
      "{}{}{}",
      counted(world_size, "rank"), counted(model, "rank"), counted(stages, "pipeline stage"),
      counted(tensor, "tensor-parallel rank"), model,
      either(world_size / model * model, world_size / model * model + model),
      proposal("pipeline.stages (--stages)", other_stages), proposal("tensor_parallel.size (--tp)", other_tensor))};
}

Result<> check_hpz_partition(int64_t partition_size, int data_ranks) {
  if (data_ranks % partition_size == 0) return {};
  return Failure{fmt::format(
      "zero_hpz_partition_size {} does not divide the {} data-parallel ranks; use the number of ranks of a host",
      partition_size, data_ranks)};
}

}  // namespace dslaunch::config
