#include "comm/abort_flag.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace dslaunch;
using Catch::Contains;
using comm::AbortFlag;

TEST_CASE("the first reason stays and names rank, host and phase", "[comm][abort_flag]") {
  AbortFlag abort_flag;
  CHECK_NOTHROW(abort_flag.check("all_reduce"));
  abort_flag.trip("connection closed", 3, "node-b");
  abort_flag.trip("something later", 4, "node-c");
  CHECK(abort_flag.tripped());
  try {
    abort_flag.check("all_reduce");
    FAIL("no error");
  } catch (const PeerError& error) {
    CHECK(error.rank() == 3);
    CHECK_THAT(error.what(), Contains("rank 3 on node-b") && Contains("connection closed") && Contains("all_reduce"));
  }
}

TEST_CASE("the action runs once, also when it comes late, and never after disarm", "[comm][abort_flag]") {
  int runs = 0;
  AbortFlag early, late, disarmed;
  early.set_abort_action([&] { ++runs; });
  early.trip("a");
  early.trip("b");
  CHECK(runs == 1);
  late.trip("a");
  late.set_abort_action([&] { ++runs; });
  CHECK(runs == 2);
  disarmed.set_abort_action([&] { ++runs; });
  disarmed.disarm();
  disarmed.trip("a");
  CHECK(runs == 2);
}
