#include "launch/terminal/tail.hpp"

#include <catch2/catch.hpp>

using dslaunch::launch::Tail;

TEST_CASE("the last lines stay", "[launch][tail]") {
  Tail tail;
  for (int i = 0; i < 1000; ++i) tail.append("line " + std::to_string(i) + "\n");
  CHECK(tail.lines(2) == "line 998\nline 999");
  CHECK(Tail().lines().empty());
}

TEST_CASE("output without newlines stays bounded", "[launch][tail]") {
  Tail tail;
  for (int i = 0; i < 100; ++i) tail.append(std::string(100000, 'x'));
  CHECK(tail.lines().size() < 1000);
}

TEST_CASE("control bytes are made visible and progress bars shown by their last state", "[launch][tail]") {
  Tail tail;
  tail.append(std::string("a\0b\r\n", 5) + "10%\r20%\r30%\n");
  CHECK(tail.lines() == "a\\x00b\n30%");
}

TEST_CASE("escape sequences in a rank's last lines do not reach the terminal", "[launch][tail]") {
  Tail tail;
  tail.append(
      "\x1b[31mred\x1b[0m\n\x1b]0;a title without an end\n\xc2\x9d"
      "C1\n\x9d"
      "0;8 bits\n");
  CHECK(tail.lines() == "\\x1b[31mred\\x1b[0m\n\\x1b]0;a title without an end\n\\x9dC1\n\\x9d0;8 bits");
}

TEST_CASE("tabs and characters beyond ASCII stay, also where a long line is cut", "[launch][tail]") {
  Tail tail;
  tail.append("a\tb \u00e9 \u4f60\u597d \U0001f600\n");
  CHECK(tail.lines() == "a\tb \u00e9 \u4f60\u597d \U0001f600");
  tail.append("x" + std::string(100, 'y') + "\n");
  std::string line = "x";
  for (int i = 0; i < 200; ++i) line += "\u4f60";
  tail.append(line + "\n");
  CHECK(tail.lines(1) == line.substr(0, 499) + "...");
}
