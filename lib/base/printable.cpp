#include "base/printable.hpp"

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

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length != 0 && (!is_control(character) || kept.find(character) != std::string_view::npos)) {
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
