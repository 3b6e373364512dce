// The fields of a message, one after another. Numbers are little-endian; a text is preceded by its length as a u32.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch {

// Thrown for bytes that do not follow the expected format.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ByteWriter {
 public:
  ByteWriter& u8(uint8_t value) { return number(value, 1); }
  ByteWriter& u16(uint16_t value) { return number(value, 2); }
  ByteWriter& u32(uint32_t value) { return number(value, 4); }
  ByteWriter& u64(uint64_t value) { return number(value, 8); }
  ByteWriter& i64(int64_t value) { return u64(static_cast<uint64_t>(value)); }
  ByteWriter& count(size_t value) { return u32(static_cast<uint32_t>(value)); }  // number of elements that follow
  ByteWriter& text(std::string_view value) { return count(value.size()).bytes(value); }
  ByteWriter& bytes(std::string_view value) { return out_ += value, *this; }
  ByteWriter& bytes(std::span<const uint8_t> value) { return out_.append(value.begin(), value.end()), *this; }
  std::string take() { return std::move(out_); }

 private:
  ByteWriter& number(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
    return *this;
  }

  std::string out_;
};

// Throws WireError with the text `ends_early` where the bytes end within a field.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes, const char* ends_early = "message ends too early")
      : rest_(bytes), ends_early_(ends_early) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  int64_t i64() { return static_cast<int64_t>(number(8)); }
  std::string text(size_t max_bytes) {
    const size_t length = u32();
    if (length > max_bytes) throw WireError("field too long");
    return std::string(bytes(length));
  }
  std::string_view bytes(size_t count) {
    if (count > rest_.size()) throw WireError(ends_early_);
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t number(size_t num_bytes) {  // at most 8
    uint64_t value = 0;
    int shift = 0;
    for (char byte : bytes(num_bytes)) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(byte)) << shift;
      shift += 8;
    }
    return value;
  }
  void skip_rest() { rest_ = {}; }
  bool at_end() const { return rest_.empty(); }
  size_t num_left() const { return rest_.size(); }
  void expect_end() const {
    if (!at_end()) throw WireError("message has excess bytes");
  }

 private:
  std::string_view rest_;
  const char* ends_early_;
};

}  // namespace dslaunch
