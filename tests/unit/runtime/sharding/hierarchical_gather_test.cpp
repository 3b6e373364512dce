#include "runtime/sharding/hierarchical_gather.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("neighbours are one group, numbered from 0", "[runtime][sharding][hierarchical_gather]") {
  const HierarchicalGather hierarchy(8, 4);
  CHECK(hierarchy.is_on());
  CHECK(hierarchy.group_size() == 4);
  CHECK(hierarchy.group_of(3) == 0);
  CHECK(hierarchy.index_in_group(3) == 3);
  CHECK(hierarchy.group_of(4) == 1);
  CHECK(hierarchy.index_in_group(4) == 0);
}

TEST_CASE("a group of one or of all ranks is plain sharding", "[runtime][sharding][hierarchical_gather]") {
  CHECK_FALSE(HierarchicalGather(4, 1).is_on());
  CHECK_FALSE(HierarchicalGather(4, 4).is_on());
}

TEST_CASE("groups that do not divide the ranks are refused with both numbers",
          "[runtime][sharding][hierarchical_gather]") {
  test::expect_error(ExitCode::kContradiction, {"zero_hpz_partition_size 4", "6 data-parallel ranks"},
                     [] { HierarchicalGather(6, 4); });
}
