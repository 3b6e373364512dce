#include "base/printable.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/format.hpp"
#include "base/utf8.hpp"

namespace dslaunch {
namespace {

// C0, DEL, and C1 as two bytes of UTF-8.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

// A character that changes the direction of the text around it, so that a terminal shows other text than there is.
bool is_direction_control(std::string_view character) {
  static constexpr std::array<std::string_view, 12> kAll = {"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c",
                                                            "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"};
  return std::find(kAll.begin(), kAll.end(), character) != kAll.end();
}

// Of three bytes of UTF-8 at most.
std::string escaped_code(std::string_view character) {
  uint32_t code = static_cast<unsigned char>(character[0]) & (character.size() == 2 ? 0x1fU : 0x0fU);
  for (const char byte : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(byte) & 0x3fU);
  return fmt::format("\\u{:04x}", code);
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length != 0 && is_direction_control(character)) {
      out += escaped_code(character);
    } else if (length != 0 && (!is_control(character) || kept.find(character) != std::string_view::npos)) {
      out += character;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(character.back()));
    }
    text.remove_prefix(character.size());
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  return printable(text, "\n\t");
}

void print_text(std::string_view text, std::FILE* stream) {
  std::fputs(printable_lines(text).c_str(), stream);
}

}  // namespace dslaunch
