#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "runtime/text/text_pattern.hpp"

using namespace dslaunch::runtime::text;

TEST_CASE("A pattern is translated with the characters that PCRE2 lacks", "[runtime][text]") {
  const auto letters = translate_regex("\\p{Lm}+");
  REQUIRE(letters.ok());
  CHECK(letters->starts_with("[\\p{Lm}\\x{10d4e}-\\x{10d4e}"));
  CHECK(letters->ends_with("]+"));
  CHECK(*translate_regex("a(?=b)|^.{,3}?$") == "\\x{61}(?=\\x{62})|^.{0,3}?$");
  CHECK(*translate_regex("[^\\r\\n\\]a-c-]") == "[^\\x{d}\\x{a}\\x{5d}\\x{61}-\\x{63}\\x{2d}]");
  CHECK(*translate_regex("\\x41\\u0042\\x{1F600}\\/") == "\\x{41}\\x{42}\\x{1f600}\\x{2f}");
}

TEST_CASE("Classes of classes become groups that match one character", "[runtime][text]") {
  const std::pair<const char*, const char*> kCases[] = {
      {"[a[b-c]d]", "[\\x{61}\\x{62}-\\x{63}\\x{64}]"},
      {"[^a[b]]", "[^\\x{61}\\x{62}]"},
      {"[a[^b]]", "(?:[\\x{61}]|[^\\x{62}])"},
      {"[^a[^b]]", "(?:(?!(?:[\\x{61}]|[^\\x{62}]))(?s:.))"},
      {"[a-c&&[^b]]+", "(?:(?=[\\x{61}-\\x{63}])[^\\x{62}])+"},
      {"[^a-c&&b]", "(?:(?!(?:(?=[\\x{61}-\\x{63}])[\\x{62}]))(?s:.))"},
  };
  for (const auto& [pattern, translated] : kCases) {
    INFO(pattern);
    CHECK(*translate_regex(pattern) == translated);
  }
}

TEST_CASE("What the two libraries understand differently is refused by name", "[runtime][text]") {
  const std::pair<const char*, const char*> kCases[] = {
      {"\\h+", "the escape \\h"},
      {"a\\b", "the escape \\b"},
      {"\\w", "the escape \\w"},
      {"\\", "a '\\' at the end"},
      {"\\x4", "the escape \\x"},
      {"\\x{110000}", "the escape \\x"},
      {"\\p{Greek}", "the property \\p{Greek}"},
      {"\\pL", "the escape \\p"},
      {"[[:alpha:]]", "a POSIX class"},
      {"[&&a]", "an intersection without an operand"},
      {"[a&&]", "a class without characters"},
      {"[a[b]", "a class without its end"},
      {"[]", "a class without characters"},
      {"[a", "a class without its end"},
      {"[z-a]", "a range without an end"},
      {"(?<name>a)", "the group (?<n"},
      {"(?m:a)", "the group (?m:"},
      {"(a", "a group without its end"},
      {"a)", "a ')' without its group"},
      {"a{2}+", "a count with '+' or '?' after it"},
      {"a{2}?", "a count with '+' or '?' after it"},
      {"a{b}", "a '{' that is not a count"},
      {"a**", "a repetition of a repetition"},
      {"(?i:ss)", "(?i:) with the letters 'ss'"},
      {"(?i:\xc3\xa9)", "(?i:) with letters beyond ASCII"},
  };
  for (const auto& [pattern, refused] : kCases) {
    INFO(pattern);
    const auto translated = translate_regex(pattern);
    REQUIRE_FALSE(translated.ok());
    CHECK(translated.error() == refused);
  }
}
