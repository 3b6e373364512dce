#include "base/color.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;

TEST_CASE("warnings and errors are coloured behind the prefixes of ranks and of dslaunch", "[base][color]") {
  const std::string red = "\x1b[1;31merror:\x1b[0m", yellow = "\x1b[33mwarning:\x1b[0m";
  CHECK(with_color("error: a\nwarning: b\n") == red + " a\n" + yellow + " b\n");
  CHECK(with_color("dslaunch: warning: b") == "dslaunch: " + yellow + " b");
  CHECK(with_color("node-1.x:12| error: a\n") == "node-1.x:12| " + red + " a\n");
  CHECK(with_color("[ranks 0-3, 6] error: a\n") == "[ranks 0-3, 6] " + red + " a\n");
  for (const char* text : {"", "\n", "no error: here\n", "say it| error: a\n", "host:x| error: a\n", "errors: 2\n",
                           "[other] error: a\n", "[ranks error: a\n"}) {
    CAPTURE(text);
    CHECK(with_color(text) == text);
  }
}

TEST_CASE("the choice of colours has three words", "[base][color]") {
  CHECK(parse_color_choice("never") == ColorChoice::kNever);
  CHECK(uses_color(parse_color_choice("always"), -1));
  CHECK_FALSE(uses_color(parse_color_choice("auto"), -1));
  test::expect_error(ExitCode::kUsage, {"--color", "sometimes", "auto, always, never"},
                     [] { parse_color_choice("sometimes"); });
}
