// Fields of a frame, one after the other: integers little-endian, strings and lists with a 4-byte length in front.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

class FieldWriter {
 public:
  void put(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  void put_int(int64_t value) { put(static_cast<uint64_t>(value), 8); }
  void put_text(std::string_view text) {
    put(text.size(), 4);
    bytes_ += text;
  }
  void put_texts(const std::vector<std::string>& texts) {
    put(texts.size(), 4);
    for (const auto& text : texts) put_text(text);
  }
  void put_map(const std::map<std::string, std::string>& map) {
    put(map.size(), 4);
    for (const auto& [key, value] : map) {
      put_text(key);
      put_text(value);
    }
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws std::out_of_range when the frame ends early, and where a value is none that the field may have: what comes
// from another host is used as an index, an exit code or a time.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t get(int num_bytes) {
    std::string_view bytes = take(num_bytes);
    uint64_t value = 0;
    for (int i = 0; i < num_bytes; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    return value;
  }
  int64_t get_int() { return static_cast<int64_t>(get(8)); }
  int get_int(int low, int high) {
    const int64_t value = get_int();
    if (value < low || value > high) throw std::out_of_range("a number that is out of range");
    return static_cast<int>(value);
  }
  int get_count() { return get_int(0, std::numeric_limits<int>::max()); }
  std::chrono::milliseconds get_duration() {
    constexpr std::chrono::milliseconds kMost =
        std::chrono::days(100000);  // more could not be added to a point in time
    const std::chrono::milliseconds value(get_int());
    if (value < value.zero() || value > kMost) throw std::out_of_range("a length of time that is out of range");
    return value;
  }
  template <class Enum>
  Enum get_enum(Enum last) {
    const uint64_t value = get(1);
    if (value > static_cast<uint64_t>(last)) throw std::out_of_range("a choice that is unknown");
    return static_cast<Enum>(value);
  }
  std::string get_text() { return std::string(take(get(4))); }
  std::vector<std::string> get_texts() {
    std::vector<std::string> texts;
    for (uint64_t left = get(4); left > 0; --left) texts.push_back(get_text());
    return texts;
  }
  std::map<std::string, std::string> get_map() {
    std::map<std::string, std::string> map;
    for (uint64_t left = get(4); left > 0; --left) {
      std::string key = get_text();
      map[std::move(key)] = get_text();
    }
    return map;
  }
  void skip_rest() { rest_ = {}; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take(size_t count) {
    if (count > rest_.size()) throw std::out_of_range("the frame ends early");
    std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest_;
};

}  // namespace dslaunch::launch
