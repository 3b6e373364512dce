// What tokenizers ask of a character: as Unicode 16 has it, whichever version the libraries know. Pure; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dslaunch::runtime::text {

// Characters of one general category that Unicode 15 and 16 have added: PCRE2 of Debian 12 knows Unicode 14, utf8proc
// Unicode 15, and the library behind tokenizer.json 16.
struct NewerCharacters {
  char32_t first = 0, last = 0;
  std::string_view category;  // "Lo"; of punctuation and symbols "P" and "S"
};
std::span<const NewerCharacters> newer_characters();
bool is_newer_character(char32_t code);

// The property White_Space.
bool is_whitespace(char32_t code);
// \w of Unicode's regular expressions: letters, marks, digits, connectors.
bool is_word_character(char32_t code);

// The first character of a valid text, which is not empty, and its bytes.
struct FirstCharacter {
  char32_t code = 0;
  size_t length = 0;
};
FirstCharacter first_character(std::string_view text);
// The last character, likewise.
FirstCharacter last_character(std::string_view text);

// Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a character, as in Python's errors="replace".
std::string valid_utf8(std::string_view bytes);
// Bytes at the end of `bytes` that can still become a character.
size_t incomplete_tail(std::string_view bytes);

}  // namespace dslaunch::runtime::text
