#include "base/parse_int.hpp"

#include <catch2/catch.hpp>
#include <cstdint>

using dslaunch::parse_int;

TEST_CASE("a text is a number as a whole, or none", "[base]") {
  CHECK(parse_int<int>("42") == 42);
  CHECK(parse_int<int>("-7") == -7);
  CHECK(parse_int<int>("007") == 7);
  for (const char* none : {"", " 1", "1 ", "+1", "1.0", "1e3", "0x10", "-", "--1", "a", "1a"}) {
    INFO(none);
    CHECK_FALSE(parse_int<int>(none));
  }
}

TEST_CASE("a number outside of what its type and bounds hold is none", "[base]") {
  CHECK(parse_int<uint16_t>("65535") == 65535);
  CHECK_FALSE(parse_int<uint16_t>("65536"));
  CHECK_FALSE(parse_int<unsigned>("-1"));
  CHECK_FALSE(parse_int<int64_t>("9223372036854775808"));
  CHECK(parse_int<int>("3", 1, 3) == 3);
  CHECK_FALSE(parse_int<int>("4", 1, 3));
  CHECK_FALSE(parse_int<int>("0", 1, 3));
}
