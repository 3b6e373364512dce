#include "launch/terminal/escape_state.hpp"

#include <catch2/catch.hpp>
#include <string>

using dslaunch::launch::EscapeState;

namespace {

bool is_open_after(std::string_view bytes) {
  EscapeState whole, piecewise;
  whole.take(bytes);
  for (char byte : bytes) piecewise.take({&byte, 1});
  CHECK(whole.is_open() == piecewise.is_open());
  return whole.is_open();
}

}  // namespace

TEST_CASE("text and complete escape sequences leave no open sequence", "[launch][escape_state]") {
  for (std::string_view bytes : {"", "plain\n", "\u00e9 \u4f60 \u00a0", "\x1b[31mred\x1b[0m", "\x1b]0;title\a",
                                 "\x1b]0;title\x1b\\", "\x1b]0;title\xc2\x9c",
                                 "\xc2\x9b"
                                 "31m",
                                 "\x1bP1$r\x1b\\", "\x1b(B",
                                 "\x1b"
                                 "7",
                                 "\x1b]0;cut\x18", "\x1b[3\x1b[0m", "\x1b]0;t\x1b[0m"}) {
    CAPTURE(std::string(bytes));
    CHECK_FALSE(is_open_after(bytes));
  }
}

TEST_CASE("an incomplete escape sequence is open", "[launch][escape_state]") {
  for (std::string_view bytes :
       {"\x1b", "\x1b[", "\x1b[31", "\x1b]0;title\n", "\x1b]0;\u00e9\n", "\x1bPq", "\x1b_x", "\x1b^x", "\x1bXx",
        "\xc2\x9d"
        "0;t",
        "\x1b]0;title\x1b", "\x1b]0;t\xc2", "\x1b]0;done\a\x1b]0;next", "\x1b("}) {
    CAPTURE(std::string(bytes));
    CHECK(is_open_after(bytes));
  }
}

TEST_CASE("the terminator closes every open escape sequence", "[launch][escape_state]") {
  for (std::string_view bytes : {"\x1b]0;title\n", "\x1b[31", "\x1b", "plain"}) {
    EscapeState state;
    state.take(bytes);
    state.take(EscapeState::kEnd);
    CHECK_FALSE(state.is_open());
  }
}
