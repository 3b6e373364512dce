#include "comm/abort_flag.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace dslaunch;
using Catch::Contains;
using comm::AbortFlag;

TEST_CASE("the first reason stays and names rank, host and phase", "[comm][abort_flag]") {
  AbortFlag latch;
  CHECK_NOTHROW(latch.check("all_reduce"));
  latch.trip("connection closed", 3, "node-b");
  latch.trip("something later", 4, "node-c");
  CHECK(latch.tripped());
  try {
    latch.check("all_reduce");
    FAIL("no error");
  } catch (const PeerError& error) {
    CHECK(error.rank() == 3);
    CHECK_THAT(error.what(), Contains("rank 3 on node-b") && Contains("connection closed") && Contains("all_reduce"));
  }
}

TEST_CASE("the action runs once, also when it comes late, and never after disarm", "[comm][abort_flag]") {
  int runs = 0;
  AbortFlag early, late, disarmed;
  early.break_with([&] { ++runs; });
  early.trip("a");
  early.trip("b");
  CHECK(runs == 1);
  late.trip("a");
  late.break_with([&] { ++runs; });
  CHECK(runs == 2);
  disarmed.break_with([&] { ++runs; });
  disarmed.disarm();
  disarmed.trip("a");
  CHECK(runs == 2);
}
