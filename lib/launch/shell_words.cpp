#include "launch/shell_words.hpp"

#include <cctype>
#include <string_view>

namespace dslaunch::launch {

std::string shell_word(const std::string& word) {
  bool plain = !word.empty();
  for (unsigned char c : word) {
    plain = plain && (std::isalnum(c) != 0 || std::string_view("_@%+=:,./-").find(c) != std::string_view::npos);
  }
  if (plain) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

}  // namespace dslaunch::launch
