#include "launch/tail.hpp"

#include <catch2/catch.hpp>

using dslaunch::launch::Tail;

TEST_CASE("the last lines stay", "[launch][tail]") {
  Tail tail;
  for (int i = 0; i < 1000; ++i) tail.append("line " + std::to_string(i) + "\n");
  CHECK(tail.lines(2) == "line 998\nline 999");
  CHECK(Tail().lines().empty());
}

TEST_CASE("a flood without an end of line stays bounded", "[launch][tail]") {
  Tail tail;
  for (int i = 0; i < 100; ++i) tail.append(std::string(100000, 'x'));
  CHECK(tail.lines().size() < 1000);
}

TEST_CASE("control bytes are shown as question marks and progress bars by their last state", "[launch][tail]") {
  Tail tail;
  tail.append(std::string("a\0b\r\n", 5) + "10%\r20%\r30%\n");
  CHECK(tail.lines() == "a?b\n30%");
}
