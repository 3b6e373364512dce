#include "base/printable.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "support/captured_output.hpp"

using namespace dslaunch;

TEST_CASE("control characters are made visible", "[base][printable]") {
  CHECK(printable(std::string_view("a\0\x1b[31m\t\x7f\r\n", 11)) == "a\\x00\\x1b[31m\\x09\\x7f\\x0d\\x0a");
  CHECK(printable("\xc2\x9b"
                  "31m \xc2\x80 \xc2\x9f") == "\\x9b31m \\x80 \\x9f");  // C1
  CHECK(printable("a\tb\n", "\t") == "a\tb\\x0a");
}

TEST_CASE("log lines and text for people obey no control character of what they quote", "[base][printable]") {
  const std::string title = "tensor '\x1b]0;title\a' \u009b31m\tis\nlost";
  const std::string shown = "tensor '\\x1b]0;title\\x07' \\x9b31m\tis\nlost\n";
  {
    const test::CapturedOutput error(2);
    log::error("{}", title);
    CHECK(error.text() == "error: " + shown);
  }
  const test::CapturedOutput out(1);
  print_text(title + "\n");
  CHECK(out.text() == shown);
}

TEST_CASE("JSON has control characters as escapes only", "[base][dump_json]") {
  const nlohmann::json document{{"name", "\x1b[m\x7f \u009b \u00a0"}};
  const std::string text = dump_json(document);
  CHECK(text == "{\"name\":\"\\u001b[m\\u007f \\u009b \u00a0\"}");
  CHECK(nlohmann::json::parse(text) == document);
}

TEST_CASE("characters that turn the direction of text are made visible", "[base][printable]") {
  CHECK(printable("a\u202etxt.pt") == "a\\u202etxt.pt");
  CHECK(printable_lines("\u061c\u200e\u200f\u202a\u202c\u2066\u2069\n") ==
        "\\u061c\\u200e\\u200f\\u202a\\u202c\\u2066\\u2069\n");
  const std::string beside = "\u200d\u2010\u2029\u202f\u2065\u206a \u05d0\u0627";  // and letters written from the right
  CHECK(printable(beside) == beside);
}

TEST_CASE("characters of UTF-8 stay, other bytes are made visible", "[base][printable]") {
  const std::string text = "\u00a0\u00e9 \u4f60\u597d \U0001f600 \ud7ff\ue000 \U0010ffff";
  CHECK(printable(text) == text);
  CHECK(printable("\xe9t\xe9") == "\\xe9t\\xe9");
  CHECK(printable("\xe4\xbd") == "\\xe4\\xbd");           // cut
  CHECK(printable("\xc0\x9b[m") == "\\xc0\\x9b[m");       // ESC in two bytes
  CHECK(printable("\xe0\x80\x9b") == "\\xe0\\x80\\x9b");  // in three
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xf5\x80\x80\x80") == "\\xf5\\x80\\x80\\x80");
}

TEST_CASE("every character that is written as UTF-8 is one", "[base][utf8]") {
  for (uint32_t code = 0; code <= 0x10ffff; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text;
    append_utf8(text, code);
    if (utf8_length(text) != text.size()) FAIL(code);
  }
}
