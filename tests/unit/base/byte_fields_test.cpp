#include "base/byte_fields.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;

TEST_CASE("numbers are written little-endian, and a text has its length in front", "[base][byte_fields]") {
  const std::string bytes = ByteWriter().u8(1).u16(0x0302).u32(0x07060504).text("ab").i64(-2).take();
  CHECK(bytes == std::string("\1\2\3\4\5\6\7\2\0\0\0ab\xfe", 14) + std::string(7, '\xff'));
  ByteReader reader(bytes);
  CHECK(reader.u8() == 1);
  CHECK(reader.u16() == 0x0302);
  CHECK(reader.u32() == 0x07060504);
  CHECK(reader.text(2) == "ab");
  CHECK(reader.i64() == -2);
  CHECK(reader.at_end());
}

TEST_CASE("bytes that end within a field, and those behind the last, are refused", "[base][byte_fields]") {
  const std::string text = ByteWriter().text("abc").take();
  CHECK_THROWS_AS(ByteReader(text).text(2), WireError);
  CHECK_THROWS_AS(ByteReader(text.substr(0, 6)).text(10), WireError);
  CHECK_THROWS_WITH(ByteReader("abc", "the frame ends early").u32(), "the frame ends early");
  ByteReader reader(text);
  reader.u32();
  CHECK_THROWS_AS(reader.expect_end(), WireError);
  reader.skip_rest();
  CHECK_NOTHROW(reader.expect_end());
}
