// The fields of a frame: those of base, lists with a leading u32 count, and numbers that are checked when read.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_fields.hpp"

namespace dslaunch::launch {

class FieldWriter : public ByteWriter {
 public:
  template <class Enum>
  void choice(Enum value) {
    u8(static_cast<uint8_t>(value));
  }
  void flag(bool value) { u8(value ? 1 : 0); }
  void texts(const std::vector<std::string>& texts) {
    count(texts.size());
    for (const auto& each : texts) text(each);
  }
  void map(const std::map<std::string, std::string>& map) {
    count(map.size());
    for (const auto& [key, value] : map) text(key).text(value);
  }
};

// Throws WireError also for a value that the field may not have: values from another host are used as an index, an exit
// code or a time.
class FieldReader : public ByteReader {
 public:
  explicit FieldReader(std::string_view bytes) : ByteReader(bytes, "the frame ends early") {}

  std::string text() { return ByteReader::text(SIZE_MAX); }  // the frame's length is limited already
  int int_between(int low, int high) {
    const int64_t value = i64();
    if (value < low || value > high) throw WireError("number out of range");
    return static_cast<int>(value);
  }
  int not_negative() { return int_between(0, std::numeric_limits<int>::max()); }
  std::chrono::milliseconds duration() {
    constexpr std::chrono::milliseconds kMax = std::chrono::days(100000);  // more could overflow a time_point
    const std::chrono::milliseconds value(i64());
    if (value < value.zero() || value > kMax) throw WireError("duration out of range");
    return value;
  }
  template <class Enum>
  Enum choice(Enum last) {
    const uint8_t value = u8();
    if (value > static_cast<uint8_t>(last)) throw WireError("unknown enumerator");
    return static_cast<Enum>(value);
  }
  bool flag() { return u8() != 0; }
  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (uint32_t left = u32(); left > 0; --left) texts.push_back(text());
    return texts;
  }
  std::map<std::string, std::string> map() {
    std::map<std::string, std::string> map;
    for (uint32_t left = u32(); left > 0; --left) {
      std::string key = text();
      map[std::move(key)] = text();
    }
    return map;
  }
};

}  // namespace dslaunch::launch
