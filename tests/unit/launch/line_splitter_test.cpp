#include "launch/terminal/line_splitter.hpp"

#include <catch2/catch.hpp>

using dslaunch::launch::LineSplitter;

TEST_CASE("every line gets the prefix once it is complete", "[launch][line_splitter]") {
  LineSplitter lines("h:0| ");
  CHECK(lines.take("one\ntw") == "h:0| one\n");
  CHECK(lines.take("o\n\n") == "h:0| two\nh:0| \n");
  CHECK(lines.take("rest").empty());
  CHECK(lines.finish() == "h:0| rest\n");
  CHECK(lines.finish().empty());
}

TEST_CASE("without a prefix bytes are passed on at once", "[launch][line_splitter]") {
  LineSplitter lines("");
  CHECK(lines.take("par") == "par");
  CHECK(lines.finish().empty());
}

TEST_CASE("NUL bytes and long lines are passed on unchanged", "[launch][line_splitter]") {
  LineSplitter lines("p ");
  std::string bulk(3 << 20, 'x');
  bulk[1000] = '\0';
  std::string shown;
  for (size_t at = 0; at < bulk.size(); at += 65536) shown += lines.take(std::string_view(bulk).substr(at, 65536));
  CHECK(shown.empty());
  CHECK(lines.take("\n") == "p " + bulk + "\n");
}

TEST_CASE("a line longer than the limit is shown in pieces", "[launch][line_splitter]") {
  LineSplitter lines("p ", 10);
  CHECK(lines.take("0123456789").empty());
  CHECK(lines.take("ab") == "p 0123456789ab\n");
  CHECK(lines.take("cd\n") == "p cd\n");
}

TEST_CASE("a carriage return ends a piece, unless a newline follows", "[launch][line_splitter]") {
  LineSplitter lines("p ");
  CHECK(lines.take("10%\r20%\r").find("p 10%\r") == 0);
  CHECK(lines.take("30%").find("p 20%\r") == 0);
  CHECK(lines.take("\r").empty());
  CHECK(lines.take("\nnext\r\n") == "p 30%\r\np next\r\n");
  bool in_bar = false;
  CHECK(lines.take("1\r2\r3", in_bar) == "p 1\r2\r");
  CHECK(in_bar);
  CHECK(lines.take("\nnext\r\n", in_bar) == "3\np next\r\n");
  CHECK_FALSE(in_bar);
}
