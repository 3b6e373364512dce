#include "base/parse_int.hpp"

#include <catch2/catch.hpp>
#include <cstdint>

using dslaunch::whole_number;

TEST_CASE("a text is a number as a whole, or none", "[base]") {
  CHECK(whole_number<int>("42") == 42);
  CHECK(whole_number<int>("-7") == -7);
  CHECK(whole_number<int>("007") == 7);
  for (const char* none : {"", " 1", "1 ", "+1", "1.0", "1e3", "0x10", "-", "--1", "a", "1a"}) {
    INFO(none);
    CHECK_FALSE(whole_number<int>(none));
  }
}

TEST_CASE("a number outside of what its type and bounds hold is none", "[base]") {
  CHECK(whole_number<uint16_t>("65535") == 65535);
  CHECK_FALSE(whole_number<uint16_t>("65536"));
  CHECK_FALSE(whole_number<unsigned>("-1"));
  CHECK_FALSE(whole_number<int64_t>("9223372036854775808"));
  CHECK(whole_number<int>("3", 1, 3) == 3);
  CHECK_FALSE(whole_number<int>("4", 1, 3));
  CHECK_FALSE(whole_number<int>("0", 1, 3));
}
