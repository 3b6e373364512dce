#include "base/shell_words.hpp"

#include <catch2/catch.hpp>

using dslaunch::shell_words;

TEST_CASE("words are quoted as a shell needs them", "[base]") {
  CHECK(shell_words({"python", "a b", "it's", "", "$x", "--k=v"}) == "python 'a b' 'it'\\''s' '' '$x' --k=v");
  CHECK(shell_words({"=ls", "50%", "\xc3\xa9", "*", "a\nb"}) == "'=ls' 50% '\xc3\xa9' '*' 'a\nb'");
}
