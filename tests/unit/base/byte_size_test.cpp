#include "base/byte_size.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;

TEST_CASE("a size has a unit, in steps of 1024 or of 1000", "[base][byte_size]") {
  constexpr int64_t kGiB = int64_t{1} << 30;
  CHECK(parse_byte_size("80GiB") == 80 * kGiB);
  CHECK(parse_byte_size("80G") == 80 * kGiB);
  CHECK(parse_byte_size("80g") == 80 * kGiB);
  CHECK(parse_byte_size("80GB") == 80'000'000'000);
  CHECK(parse_byte_size("1.5TiB") == 1536 * kGiB);
  CHECK(parse_byte_size("512M") == kGiB / 2);
  CHECK(parse_byte_size("1kb") == 1000);
  for (const char* text :
       {"", "80", "G", "80 GiB", "-1G", "0G", "80GiBs", "80X", "80GG", "nanG", "infG", "9999999T", "1e99G"}) {
    INFO(text);
    CHECK_FALSE(parse_byte_size(text));
  }
}

TEST_CASE("bytes are shown in a unit in which they have digits", "[base][byte_size]") {
  CHECK(format_bytes(0) == "0.00 GiB");
  CHECK(format_bytes(1) == "0.00 KiB");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(130'000) == "126.95 KiB");
  CHECK(format_bytes(1 << 17) == "0.12 MiB");
  CHECK(format_bytes(100 << 20) == "100.00 MiB");
  CHECK(format_bytes(128 << 20) == "0.12 GiB");
  CHECK(format_bytes((int64_t{5} << 30) / 4) == "1.25 GiB");
}
