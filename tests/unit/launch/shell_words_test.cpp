#include "launch/shell_words.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::launch;

TEST_CASE("words are quoted as a shell needs them", "[launch][shell_words]") {
  CHECK(shell_words({"python", "a b", "it's", "", "$x", "--k=v"}) == "python 'a b' 'it'\\''s' '' '$x' --k=v");
}
