#include "runtime/optim/shard_runs.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <vector>

namespace {

using namespace dslaunch::runtime;
using optim::ShardTensors;

// Parameters 0 (10 elements), 1 (5), 2 (7), 3 (0), padded to 64.
const FlatGroup kLayout{0, at::kFloat, false, {{0, 0, 10}, {1, 10, 5}, {3, 15, 0}, {2, 15, 7}}, 22, 64};

ShardTensors shard_of(Range range) {
  ShardTensors shard;
  shard.range = range;
  const at::Tensor whole = at::arange(64, at::kFloat);
  shard.master = whole.narrow(0, range.begin, range.size());
  shard.gradient = at::zeros({range.size()});
  shard.low_precision = at::zeros({range.size()}, at::kBFloat16);
  return shard;
}

// Begin, end and optimizer group of each run.
using Runs = std::vector<std::vector<int64_t>>;

Runs runs_of(Range range, const std::vector<int>& group_of) {
  Runs out;
  for (const auto& run : optim::split_by_group(shard_of(range), kLayout, group_of)) {
    out.push_back({run.range.begin, run.range.end, run.group});
    // The views lie where the range says.
    CHECK(run.master.numel() == run.range.size());
    CHECK(run.gradient.numel() == run.range.size());
    CHECK(run.low_precision.numel() == run.range.size());
    if (run.master.numel() > 0) CHECK(run.master[0].item<float>() == static_cast<float>(run.range.begin));
  }
  return out;
}

}  // namespace

TEST_CASE("a shard of one optimizer group is one run", "[runtime][shard_runs]") {
  CHECK(runs_of({0, 64}, {2, 2, 2, 2}) == Runs{{0, 64, 2}});
}

TEST_CASE("a shard is cut where the optimizer group changes, padding stays with the last run",
          "[runtime][shard_runs]") {
  CHECK(runs_of({0, 64}, {0, 0, 1, 0}) == Runs{{0, 15, 0}, {15, 64, 1}});
  CHECK(runs_of({0, 64}, {0, 1, 2, 5}) == Runs{{0, 10, 0}, {10, 15, 1}, {15, 64, 2}});
  CHECK(runs_of({4, 12}, {0, 1, 2, 5}) == Runs{{4, 10, 0}, {10, 12, 1}});
}

TEST_CASE("a shard of padding alone belongs to the group before it", "[runtime][shard_runs]") {
  CHECK(runs_of({32, 64}, {0, 1, 2, 5}) == Runs{{32, 64, 2}});
}

TEST_CASE("moments lie at the same place modulo 16 bytes as their master", "[runtime][shard_runs]") {
  const dslaunch::config::Optimizer settings{.type = dslaunch::config::OptimizerType::kAdagrad,
                                             .initial_accumulator_value = 0.5};
  const optim::OptimizerGroups groups{{{"a", settings}, {"b", settings}, {"c", settings}}, {0, 1, 2, 2}, 2};
  const auto optimizer = optim::make_flat_optimizer(groups, {});
  for (auto& run : optim::split_by_group(shard_of({0, 64}), kLayout, groups.of_parameter)) {
    optim::allocate_moments(*optimizer, run);
    REQUIRE(run.moments.size() == 1);
    CHECK(run.moments[0].numel() == run.master.numel());
    CHECK(at::equal(run.moments[0], at::full_like(run.master, 0.5)));
    CHECK(reinterpret_cast<uintptr_t>(run.moments[0].data_ptr()) % 16 ==
          reinterpret_cast<uintptr_t>(run.master.data_ptr()) % 16);
  }
}
