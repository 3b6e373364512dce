#include "runtime/state/partition.hpp"

#include <catch2/catch.hpp>

#include "base/format.hpp"

using namespace dslaunch::runtime;

namespace {

ParameterTable table_of(std::vector<int64_t> numels, std::vector<std::vector<int>> units) {
  ParameterTable table;
  for (size_t i = 0; i < numels.size(); ++i) {
    table.parameters.push_back({fmt::format("p{}", i), {numels[i]}, numels[i], at::kFloat, true, 0});
  }
  for (auto& unit : units) table.units.push_back({"", unit});
  return table;
}

PartitionOptions options_of(const ParameterTable& table, int num_shards, int64_t max_group_numel) {
  PartitionOptions out;
  out.compute_dtypes.assign(table.parameters.size(), at::kFloat);
  out.num_shards = num_shards;
  out.max_group_numel = max_group_numel;
  return out;
}

}  // namespace

TEST_CASE("a unit's parameters of one dtype lie in one padded buffer in order of use", "[runtime][partition]") {
  auto table = table_of({5, 3, 7}, {{2}, {1, 0}});
  auto groups = plan_flat_groups(table, options_of(table, 2, 1000));
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].segments[0].parameter == 2);
  CHECK(groups[1].segments[0].parameter == 1);
  CHECK(groups[1].segments[1].offset == 3);
  CHECK(groups[1].numel == 8);
  CHECK(groups[1].padded_numel == 2 * kShardAlignment);
}

TEST_CASE("a unit of two dtypes gets a buffer for each", "[runtime][partition]") {
  auto table = table_of({5, 3, 7}, {{0, 1, 2}});
  auto options = options_of(table, 1, 1000);
  options.compute_dtypes[1] = at::kBFloat16;
  auto groups = plan_flat_groups(table, options);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].numel == 12);
  CHECK(groups[1].dtype == at::kBFloat16);
}

TEST_CASE("a buffer is closed by the parameter that reaches the bucket size, and no parameter is cut",
          "[runtime][partition]") {
  auto table = table_of({100, 10, 10, 10}, {{0, 1, 2, 3}});
  auto groups = plan_flat_groups(table, options_of(table, 1, 20));
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].numel == 100);
  CHECK(groups[1].numel == 20);
  CHECK(groups[2].numel == 10);
}

TEST_CASE("the pieces of all shards cover every element exactly once, zero-size parameters included",
          "[runtime][partition]") {
  const int shards = GENERATE(1, 2, 3, 4, 7);
  auto table = table_of({1, 0, 130, 64, 999, 3}, {{0, 1, 2}, {3, 4, 5}});
  for (const auto& group : plan_flat_groups(table, options_of(table, shards, 500))) {
    CHECK(group.padded_numel % shards == 0);
    std::vector<std::vector<int>> seen(table.parameters.size());
    for (size_t i = 0; i < seen.size(); ++i) seen[i].resize(table.parameters[i].numel);
    for (int shard = 0; shard < shards; ++shard) {
      const Range range = shard_range(group, shard, shards);
      for (const auto& piece : pieces_in(group, range)) {
        CHECK(piece.offset + piece.count <= range.size());
        for (int64_t k = 0; k < piece.count; ++k) seen[piece.parameter][piece.begin + k] += 1;
      }
    }
    for (const auto& segment : group.segments) {
      for (int count : seen[segment.parameter]) CHECK(count == 1);
    }
  }
}

TEST_CASE("segments stand in the order of optimizer groups, then of use", "[runtime][partition]") {
  auto table = table_of({5, 3, 7, 2}, {{3, 1, 0, 2}});
  auto options = options_of(table, 1, 1000);
  options.optimizer_groups = {1, 0, 0, 1};
  const auto groups = plan_flat_groups(table, options);
  REQUIRE(groups.size() == 1);
  std::vector<int> order;
  for (const auto& segment : groups[0].segments) order.push_back(segment.parameter);
  CHECK(order == std::vector<int>{1, 2, 3, 0});
}

TEST_CASE("stage 3 keeps small parameters whole, up to the limit for the model", "[runtime][partition]") {
  auto table = table_of({10, 200, 9, 8, 0}, {{0, 1, 4}, {2, 3}});
  auto options = options_of(table, 2, 1000);
  options.gathers = true;
  options.persistence_threshold = 10;
  options.model_persistence_threshold = 19;
  std::vector<bool> is_gathered(5);
  for (const auto& group : plan_flat_groups(table, options)) {
    for (const auto& segment : group.segments) is_gathered[segment.parameter] = group.is_gathered;
  }
  CHECK(is_gathered == std::vector<bool>{false, true, false, true, false});  // 10 + 9 are the 19
}

TEST_CASE("frozen parameters are in groups of their own behind all others, and only when they are gathered",
          "[runtime][partition]") {
  auto table = table_of({5, 300, 7, 200}, {{0}, {2}});
  for (int frozen : {1, 3}) table.parameters[static_cast<size_t>(frozen)].trainable = false;
  table.units[0].frozen = {1};
  table.units[1].frozen = {3};
  auto options = options_of(table, 2, 1000);
  CHECK(plan_flat_groups(table, options).size() == 2);
  options.gathers = true;
  options.persistence_threshold = 250;
  const auto groups = plan_flat_groups(table, options);
  REQUIRE(groups.size() == 3);
  CHECK_FALSE((groups[0].is_frozen || groups[1].is_frozen));
  CHECK((groups[2].is_frozen && groups[2].is_gathered && groups[2].unit == 0));
  CHECK(groups[2].segments[0].parameter == 1);
}
