#include "base/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace dslaunch {
namespace {

bool is_plain(unsigned char c) {
  return c < 128 &&
         (std::isalnum(c) != 0 || std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos);
}

}  // namespace

std::string shell_word(const std::string& word) {
  // zsh expands "=ls" to the path of ls.
  if (!word.empty() && word[0] != '=' && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

}  // namespace dslaunch
