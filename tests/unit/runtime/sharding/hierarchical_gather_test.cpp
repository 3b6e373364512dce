#include "runtime/sharding/hierarchical_gather.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

FlatGroup flat(int64_t padded) {
  FlatGroup group;
  group.numel = padded;
  group.padded_numel = padded;
  return group;
}

}  // namespace

TEST_CASE("the secondary parts of every group make up the whole unit", "[runtime][sharding][hierarchical_gather]") {
  const HierarchicalGather hierarchy(8, 4);
  const FlatGroup unit = flat(8 * 64);
  CHECK(hierarchy.is_on());
  CHECK(hierarchy.num_groups() == 2);
  for (int rank = 0; rank < 8; ++rank) {
    const auto members = hierarchy.members(rank);
    CHECK(members.size() == 4);
    CHECK(members[static_cast<size_t>(hierarchy.index_in_group(rank))] == rank);
    int64_t at = 0;
    for (int member : members) {
      CHECK(hierarchy.group_of(member) == hierarchy.group_of(rank));
      CHECK(hierarchy.secondary(unit, member).begin == at);
      at = hierarchy.secondary(unit, member).end;
    }
    CHECK(at == unit.padded_numel);
    CHECK(hierarchy.primary(unit, rank).size() == 64);
    CHECK(hierarchy.secondary(unit, rank).size() == 128);
  }
  CHECK(hierarchy.extra_numel(unit) == 128);
}

TEST_CASE("a group of one or of all ranks is plain sharding", "[runtime][sharding][hierarchical_gather]") {
  for (int group_size : {1, 4}) {
    const HierarchicalGather hierarchy(4, group_size);
    const FlatGroup unit = flat(4 * 64);
    CHECK_FALSE(hierarchy.is_on());
    CHECK(hierarchy.extra_numel(unit) == 0);
    for (int rank = 0; rank < 4; ++rank)
      CHECK(hierarchy.secondary(unit, rank).begin == hierarchy.primary(unit, rank).begin);
  }
}

TEST_CASE("groups that do not divide the ranks are refused with both numbers",
          "[runtime][sharding][hierarchical_gather]") {
  test::expect_error(ExitCode::kContradiction, {"zero_hpz_partition_size 4", "6 data-parallel ranks"},
                     [] { HierarchicalGather(6, 4); });
}
