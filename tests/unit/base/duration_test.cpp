#include "base/duration.hpp"

#include <catch2/catch.hpp>

using dslaunch::deadline_after;
using dslaunch::parse_duration;
using namespace std::chrono_literals;

TEST_CASE("lengths of time are read with and without a unit", "[base][duration]") {
  CHECK(parse_duration("90") == 90s);
  CHECK(parse_duration("1.5") == 1500ms);
  CHECK(parse_duration("0") == 0s);
  CHECK(parse_duration("500ms") == 500ms);
  CHECK(parse_duration("10m") == 10min);
  CHECK(parse_duration("2h") == 2h);
  CHECK(parse_duration("1d") == 24h);
}

TEST_CASE("what is no length of time is refused", "[base][duration]") {
  for (const char* text : {"", "s", "-1", "1x", "1 h", "1e99", "nan", "inf", "1h30"}) CHECK_FALSE(parse_duration(text));
}

TEST_CASE("the longest length of time still has an end on the clock, and none is no limit", "[base][duration]") {
  CHECK_FALSE(parse_duration("10001d"));
  const auto longest = parse_duration("10000d");
  REQUIRE(longest);
  CHECK_FALSE(deadline_after(*longest).passed());
  CHECK_FALSE(deadline_after(*longest).is_never());
  CHECK(deadline_after(0ms).is_never());
}
