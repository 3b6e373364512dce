#include "base/bytes.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;

TEST_CASE("hexadecimal text and bytes are each other's inverse", "[base][bytes]") {
  std::vector<uint8_t> bytes{0x00, 0x7f, 0xff};
  CHECK(to_hex(bytes) == "007fff");
  CHECK(from_hex("007FfF") == bytes);
  CHECK_FALSE(from_hex("0"));
  CHECK_FALSE(from_hex("zz"));
}

TEST_CASE("random bytes differ from call to call", "[base][bytes]") {
  CHECK(random_bytes(32).size() == 32);
  CHECK(random_bytes(32) != random_bytes(32));
}
