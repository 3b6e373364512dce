#include "runtime/text/characters.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.hpp"

namespace dslaunch::runtime::text {
namespace {

constexpr NewerCharacters kNewer[] = {
    {0x897, 0x897, "Mn"},     {0xcf3, 0xcf3, "Mc"},     {0xece, 0xece, "Mn"},     {0x1b4e, 0x1b4f, "P"},
    {0x1b7f, 0x1b7f, "P"},    {0x1c89, 0x1c89, "Lu"},   {0x1c8a, 0x1c8a, "Ll"},   {0x2427, 0x2429, "S"},
    {0x2ffc, 0x2fff, "S"},    {0x31e4, 0x31e5, "S"},    {0x31ef, 0x31ef, "S"},    {0xa7cb, 0xa7cc, "Lu"},
    {0xa7cd, 0xa7cd, "Ll"},   {0xa7da, 0xa7da, "Lu"},   {0xa7db, 0xa7db, "Ll"},   {0xa7dc, 0xa7dc, "Lu"},
    {0x105c0, 0x105f3, "Lo"}, {0x10d40, 0x10d49, "Nd"}, {0x10d4a, 0x10d4d, "Lo"}, {0x10d4e, 0x10d4e, "Lm"},
    {0x10d4f, 0x10d4f, "Lo"}, {0x10d50, 0x10d65, "Lu"}, {0x10d69, 0x10d6d, "Mn"}, {0x10d6e, 0x10d6e, "P"},
    {0x10d6f, 0x10d6f, "Lm"}, {0x10d70, 0x10d85, "Ll"}, {0x10d8e, 0x10d8f, "S"},  {0x10ec2, 0x10ec4, "Lo"},
    {0x10efc, 0x10eff, "Mn"}, {0x1123f, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138b, 0x1138b, "Lo"}, {0x1138e, 0x1138e, "Lo"}, {0x11390, 0x113b5, "Lo"}, {0x113b7, 0x113b7, "Lo"},
    {0x113b8, 0x113ba, "Mc"}, {0x113bb, 0x113c0, "Mn"}, {0x113c2, 0x113c2, "Mc"}, {0x113c5, 0x113c5, "Mc"},
    {0x113c7, 0x113ca, "Mc"}, {0x113cc, 0x113cd, "Mc"}, {0x113ce, 0x113ce, "Mn"}, {0x113cf, 0x113cf, "Mc"},
    {0x113d0, 0x113d0, "Mn"}, {0x113d1, 0x113d1, "Lo"}, {0x113d2, 0x113d2, "Mn"}, {0x113d3, 0x113d3, "Lo"},
    {0x113d4, 0x113d5, "P"},  {0x113d7, 0x113d8, "P"},  {0x113e1, 0x113e2, "Mn"}, {0x116d0, 0x116e3, "Nd"},
    {0x11b00, 0x11b09, "P"},  {0x11bc0, 0x11be0, "Lo"}, {0x11be1, 0x11be1, "P"},  {0x11bf0, 0x11bf9, "Nd"},
    {0x11f00, 0x11f01, "Mn"}, {0x11f02, 0x11f02, "Lo"}, {0x11f03, 0x11f03, "Mc"}, {0x11f04, 0x11f10, "Lo"},
    {0x11f12, 0x11f33, "Lo"}, {0x11f34, 0x11f35, "Mc"}, {0x11f36, 0x11f3a, "Mn"}, {0x11f3e, 0x11f3f, "Mc"},
    {0x11f40, 0x11f40, "Mn"}, {0x11f41, 0x11f41, "Mc"}, {0x11f42, 0x11f42, "Mn"}, {0x11f43, 0x11f4f, "P"},
    {0x11f50, 0x11f59, "Nd"}, {0x11f5a, 0x11f5a, "Mn"}, {0x1342f, 0x1342f, "Lo"}, {0x13440, 0x13440, "Mn"},
    {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143fa, "Lo"}, {0x16100, 0x1611d, "Lo"},
    {0x1611e, 0x16129, "Mn"}, {0x1612a, 0x1612c, "Mc"}, {0x1612d, 0x1612f, "Mn"}, {0x16130, 0x16139, "Nd"},
    {0x16d40, 0x16d42, "Lm"}, {0x16d43, 0x16d6a, "Lo"}, {0x16d6b, 0x16d6c, "Lm"}, {0x16d6d, 0x16d6f, "P"},
    {0x16d70, 0x16d79, "Nd"}, {0x18cff, 0x18cff, "Lo"}, {0x1b132, 0x1b132, "Lo"}, {0x1b155, 0x1b155, "Lo"},
    {0x1cc00, 0x1ccef, "S"},  {0x1ccf0, 0x1ccf9, "Nd"}, {0x1cd00, 0x1ceb3, "S"},  {0x1d2c0, 0x1d2d3, "No"},
    {0x1df25, 0x1df2a, "Ll"}, {0x1e030, 0x1e06d, "Lm"}, {0x1e08f, 0x1e08f, "Mn"}, {0x1e4d0, 0x1e4ea, "Lo"},
    {0x1e4eb, 0x1e4eb, "Lm"}, {0x1e4ec, 0x1e4ef, "Mn"}, {0x1e4f0, 0x1e4f9, "Nd"}, {0x1e5d0, 0x1e5ed, "Lo"},
    {0x1e5ee, 0x1e5ef, "Mn"}, {0x1e5f0, 0x1e5f0, "Lo"}, {0x1e5f1, 0x1e5fa, "Nd"}, {0x1e5ff, 0x1e5ff, "P"},
    {0x1f6dc, 0x1f6dc, "S"},  {0x1f774, 0x1f776, "S"},  {0x1f77b, 0x1f77f, "S"},  {0x1f7d9, 0x1f7d9, "S"},
    {0x1f8b2, 0x1f8bb, "S"},  {0x1f8c0, 0x1f8c1, "S"},  {0x1fa75, 0x1fa77, "S"},  {0x1fa87, 0x1fa89, "S"},
    {0x1fa8f, 0x1fa8f, "S"},  {0x1faad, 0x1faaf, "S"},  {0x1fabb, 0x1fabf, "S"},  {0x1fac6, 0x1fac6, "S"},
    {0x1face, 0x1facf, "S"},  {0x1fada, 0x1fadc, "S"},  {0x1fadf, 0x1fadf, "S"},  {0x1fae8, 0x1fae9, "S"},
    {0x1faf7, 0x1faf8, "S"},  {0x1fbcb, 0x1fbef, "S"},  {0x2b739, 0x2b739, "Lo"}, {0x2ebf0, 0x2ee5d, "Lo"},
    {0x31350, 0x323af, "Lo"},
};

std::string_view newer_category(char32_t code) {
  const auto row = std::lower_bound(std::begin(kNewer), std::end(kNewer), code,
                                    [](const NewerCharacters& one, char32_t value) { return one.last < value; });
  return row != std::end(kNewer) && row->first <= code ? row->category : std::string_view();
}

// Symbols that are alphabetic: letters in circles and squares.
bool is_alphabetic_symbol(char32_t code) {
  return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
         (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes from the beginning that a character may have in front of the first byte that does not fit; at least 1.
size_t maximal_part(std::string_view bytes) {
  const auto fits = [&](size_t count) {  // some character begins with these bytes
    std::string character(bytes.substr(0, count));
    const auto first = static_cast<unsigned char>(character[0]);
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (count >= length) return false;
    if (count == 1) character += first == 0xe0 ? '\xa0' : first == 0xf0 ? '\x90' : '\x80';
    character.resize(length, '\x80');
    return utf8_length(character) == length;
  };
  size_t count = 1;
  if (!fits(1)) return 1;
  while (count < bytes.size() && fits(count + 1)) ++count;
  return count;
}

}  // namespace

std::span<const NewerCharacters> newer_characters() {
  return kNewer;
}

bool is_newer_character(char32_t code) {
  return !newer_category(code).empty();
}

bool is_whitespace(char32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

bool is_word_character(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_SO:
      return is_alphabetic_symbol(code);
    case UTF8PROC_CATEGORY_CN: {
      const std::string_view category = newer_category(code);
      return category.starts_with('L') || category.starts_with('M') || category == "Nd";
    }
    default:
      return code == 0x200c || code == 0x200d;
  }
}

FirstCharacter first_character(std::string_view text) {
  utf8proc_int32_t code = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &code);
  return length > 0 ? FirstCharacter{static_cast<char32_t>(code), static_cast<size_t>(length)} : FirstCharacter{0, 1};
}

FirstCharacter last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return first_character(text.substr(begin));
}

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    const size_t taken = length ? length : maximal_part(bytes);
    out += length ? bytes.substr(0, length) : kReplacement;
    bytes.remove_prefix(taken);
  }
  return out;
}

size_t incomplete_tail(std::string_view bytes) {
  for (size_t count = std::min<size_t>(3, bytes.size()); count > 0; --count) {
    const std::string_view tail = bytes.substr(bytes.size() - count);
    const auto first = static_cast<unsigned char>(tail[0]);
    if (first < 0xc2 || first > 0xf4) continue;
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (count < length && maximal_part(tail) == count) return count;
  }
  return 0;
}

}  // namespace dslaunch::runtime::text
