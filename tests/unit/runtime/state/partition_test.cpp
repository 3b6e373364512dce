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

std::vector<at::ScalarType> all_fp32(const ParameterTable& table) {
  return std::vector<at::ScalarType>(table.parameters.size(), at::kFloat);
}

}  // namespace

TEST_CASE("a unit's parameters of one dtype lie in one padded buffer in order of use", "[runtime][partition]") {
  auto table = table_of({5, 3, 7}, {{2}, {1, 0}});
  auto groups = plan_flat_groups(table, all_fp32(table), 2, 1000);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].segments[0].parameter == 2);
  CHECK(groups[1].segments[0].parameter == 1);
  CHECK(groups[1].segments[1].offset == 3);
  CHECK(groups[1].numel == 8);
  CHECK(groups[1].padded_numel == 2 * kShardAlignment);
}

TEST_CASE("a unit of two dtypes gets a buffer for each", "[runtime][partition]") {
  auto table = table_of({5, 3, 7}, {{0, 1, 2}});
  auto groups = plan_flat_groups(table, {at::kFloat, at::kBFloat16, at::kFloat}, 1, 1000);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].numel == 12);
  CHECK(groups[1].dtype == at::kBFloat16);
}

TEST_CASE("a buffer is closed by the parameter that reaches the bucket size, and no parameter is cut",
          "[runtime][partition]") {
  auto table = table_of({100, 10, 10, 10}, {{0, 1, 2, 3}});
  auto groups = plan_flat_groups(table, all_fp32(table), 1, 20);
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].numel == 100);
  CHECK(groups[1].numel == 20);
  CHECK(groups[2].numel == 10);
}

TEST_CASE("the pieces of all shards cover every element exactly once, zero-size parameters included",
          "[runtime][partition]") {
  const int shards = GENERATE(1, 2, 3, 4, 7);
  auto table = table_of({1, 0, 130, 64, 999, 3}, {{0, 1, 2}, {3, 4, 5}});
  for (const auto& group : plan_flat_groups(table, all_fp32(table), shards, 500)) {
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
