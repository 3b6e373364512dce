// Characters as UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch {

inline void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&out, code](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code >> 18 & 7));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Bytes of the first character of `text`; 0: `text` does not begin with a valid character (a byte that is not UTF-8, an
// overlong form, a surrogate, more than U+10FFFF, a truncated character).
inline size_t utf8_length(std::string_view text) {
  const auto byte = [text](size_t at) { return static_cast<unsigned char>(text[at]); };
  if (text.empty()) return 0;
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool too_long = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool no_character = (byte(0) == 0xed && byte(1) >= 0xa0) || (byte(0) == 0xf4 && byte(1) >= 0x90);
  return too_long || no_character ? 0 : length;
}

}  // namespace dslaunch
