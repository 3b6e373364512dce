#include "runtime/sharding/hierarchical_gather.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("neighbours are one group, numbered from 0", "[runtime][sharding][hierarchical_gather]") {
  const auto third = hpz_group(3, 8, 4), fourth = hpz_group(4, 8, 4);
  REQUIRE(third);
  CHECK(third->size == 4);
  CHECK(third->group == 0);
  CHECK(third->index == 3);
  REQUIRE(fourth);
  CHECK(fourth->group == 1);
  CHECK(fourth->index == 0);
}

TEST_CASE("a group of one or of all ranks is plain sharding", "[runtime][sharding][hierarchical_gather]") {
  CHECK_FALSE(hpz_group(0, 4, 1));
  CHECK_FALSE(hpz_group(0, 4, 4));
}

TEST_CASE("groups that do not divide the ranks are refused with both numbers",
          "[runtime][sharding][hierarchical_gather]") {
  test::expect_error(ExitCode::kContradiction, {"zero_hpz_partition_size 4", "6 data-parallel ranks"},
                     [] { hpz_group(0, 6, 4); });
  // What is 1 or 0 in 32 bits.
  test::expect_error(ExitCode::kContradiction, {"zero_hpz_partition_size 4294967297"},
                     [] { hpz_group(0, 2, 4294967297); });
  test::expect_error(ExitCode::kContradiction, {"zero_hpz_partition_size 4294967296"},
                     [] { hpz_group(0, 2, 4294967296); });
}
