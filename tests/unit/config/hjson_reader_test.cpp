#include "config/readers.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "config/document.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

Value read(const std::string& text) {
  auto result = read_hjson(text);
  INFO(text);
  INFO((result.problems.empty() ? "" : result.problems.front().message));
  REQUIRE(result.root);
  REQUIRE(result.problems.empty());
  return *result.root;
}

Problem problem_of(const std::string& text) {
  auto result = read_document(text, Format::kHjson);
  INFO(text);
  REQUIRE(result.problems.size() == 1);
  return result.problems.front();
}

void check_place(const Position& position, int line, int column) {
  CHECK(position.line == line);
  CHECK(position.column == column);
}

}  // namespace

TEST_CASE("plain JSON is read with its types", "[config][hjson_reader]") {
  Value root = read(R"({"a": 1, "b": -2.5, "c": true, "d": null, "e": "x", "f": [1, 2], "g": {"h": 1e3}})");
  CHECK(root.find("a")->integer == 1);
  CHECK(root.find("b")->number == -2.5);
  CHECK(root.find("c")->boolean);
  CHECK(root.find("d")->is_null());
  CHECK(root.find("e")->text == "x");
  CHECK(root.find("f")->items.size() == 2);
  CHECK(root.find("g")->find("h")->number == 1000);
  CHECK(root.find("nothing") == nullptr);
}

TEST_CASE("every value and key knows its line and column", "[config][hjson_reader]") {
  Value root = read("{\n  \"a\": 1,\n  # größer\n  /* über */ b: [10,\n    20]\n}");
  check_place(root.members[0].position, 2, 3);
  check_place(root.members[0].value.position, 2, 8);
  check_place(root.members[1].position, 4, 14);  // characters, not bytes
  check_place(root.members[1].value.items[0].position, 4, 18);
  check_place(root.members[1].value.items[1].position, 5, 5);
}

TEST_CASE("all three kinds of comments are skipped", "[config][hjson_reader]") {
  Value root = read("# one\n{ // two\n a: 1 # three\n /* four\n five */ b: 2 // six\n c: true /* seven */\n}\n// end");
  CHECK(root.members.size() == 3);
  CHECK(root.find("a")->integer == 1);
  CHECK(root.find("b")->integer == 2);
  CHECK(root.find("c")->boolean);
}

TEST_CASE("commas are optional at line ends and may trail", "[config][hjson_reader]") {
  Value root = read("{\n \"a\": true\n \"b\": [1\n 2,\n 3,]\n \"c\": {}\n \"d\": \"x\"\n \"e\": 1,\n}");
  CHECK(root.members.size() == 5);
  CHECK(root.find("b")->items.size() == 3);
}

TEST_CASE("unquoted strings run to the end of the line", "[config][hjson_reader]") {
  Value root = read("{\n a: hello, world # not a comment\n b: 5 apples\n c: trueish\n d: -\n e: 01\n f: 1.\n}");
  CHECK(root.find("a")->text == "hello, world # not a comment");
  CHECK(root.find("b")->text == "5 apples");
  CHECK(root.find("c")->text == "trueish");
  CHECK(root.find("d")->text == "-");
  CHECK(root.find("e")->text == "01");
  CHECK(root.find("f")->text == "1.");
}

TEST_CASE("braces around the whole are optional", "[config][hjson_reader]") {
  Value root = read("# a job\na: 1\nb: {c: 2}\n");
  CHECK(root.members.size() == 2);
  CHECK(root.find("b")->find("c")->integer == 2);
}

TEST_CASE("strings know escapes, both quotes and lines of their own", "[config][hjson_reader]") {
  Value root = read(R"({a: "\t\"\u00e9\ud83d\ude00\/", b: 'it"s', c: "\ud83dx", d: "\ud83d\u0041\ud83d\ud83d\ude00"})");
  CHECK(root.find("a")->text == "\t\"é😀/");
  CHECK(root.find("b")->text == "it\"s");
  CHECK(root.find("c")->text == "\uFFFDx");
  CHECK(root.find("d")->text == "\uFFFDA\uFFFD😀");

  Value block = read("{\n  t:\n    '''\n    one\n      two\n    three\n    '''\n  u: ''' \t x\n     y '''\n}");
  CHECK(block.find("t")->text == "one\n  two\nthree");
  CHECK(block.find("u")->text == "x\ny ");
}

TEST_CASE("integers are 64 bits wide and larger ones become floats", "[config][hjson_reader]") {
  Value root =
      read("{a: 9999999999, b: 9223372036854775807, c: 9223372036854775808, d: -0, e: 5e8, f: 1e999, g: 1e-999}");
  CHECK(root.find("a")->integer == 9999999999);
  CHECK(root.find("b")->integer == INT64_MAX);
  CHECK(root.find("c")->is_float());
  CHECK(root.find("d")->integer == 0);
  CHECK(root.find("e")->number == 5e8);
  CHECK(std::isinf(root.find("f")->number));
  CHECK(root.find("g")->number == 0);
}

TEST_CASE("a number out of range is on the side that its digits say, not the sign of its exponent",
          "[config][hjson_reader]") {
  const std::string zeros(400, '0');
  Value root = read("{a: 0." + zeros + "1, b: -1" + zeros + ".5, c: 1" + zeros + zeros + "e-10, d: 1" + zeros +
                    "e-400, e: 0." + zeros + "1e+400}");
  CHECK(root.find("a")->number == 0);
  CHECK(root.find("b")->number == -HUGE_VAL);
  CHECK(root.find("c")->number == HUGE_VAL);
  CHECK(root.find("d")->number == 1);
  CHECK(root.find("e")->number == 0.1);
}

TEST_CASE("a repeated key is a problem at its second place and names the first", "[config][hjson_reader]") {
  auto result = read_hjson("{\n a: 1\n b: {c: 1, c: 2}\n a: 3\n}");
  REQUIRE(result.problems.size() == 2);
  check_place(result.problems[0].position, 3, 12);
  CHECK_THAT(result.problems[0].message, Contains("'c' is given twice") && Contains("line 3, column 6"));
  check_place(result.problems[1].position, 4, 2);
  CHECK_THAT(result.problems[1].message, Contains("line 2, column 2"));
  CHECK(result.root->find("a")->integer == 1);
}

TEST_CASE("syntax errors say what is missing and where", "[config][hjson_reader]") {
  struct Case {
    std::string text, message;
    int line, column;
  };
  auto c = GENERATE(values<Case>({
      {"{\"a\": 1", "a '}' is missing", 1, 1},
      {"{\n \"a\": [1, 2\n", "a ']' is missing", 2, 7},
      {"{\"a\" 1}", "expected a ':' after the key 'a', got '1'", 1, 6},
      {"{\"a\": }", "expected a value, got '}'", 1, 7},
      {"{\"a\": 1,, \"b\": 2}", "expected a key, got ','", 1, 9},
      {"{\"a\": \"x\n\"}", "not closed on its line", 1, 7},
      {"{\"a\": '''x}", "''' string that opens here is never closed", 1, 7},
      {"{\"a\": 1 /* x", "a */ is missing", 1, 9},
      {"{\"a\": \"\\x\"}", "unknown escape", 1, 8},
      {"{\"a\": \"\\u12g4\"}", "four hexadecimal digits", 1, 8},
      {"{\n  a: {\n    b: {\n      c: 1\n  },\n  d: 2\n}\n", "before the one in line 5", 3, 8},
      {"{\n  a: {\n    b: 1\n  },\n  c: 2\n", "never closed", 1, 1},
      {"{\"a\": 1} }", "expected the end of the file", 1, 10},
      {"{a b: 1}", "expected a ':' after the key 'a', got 'b'", 1, 4},
      {"{a:", "a value is missing at the end of the file", 1, 4},
      {"[1, 2]", "expected an object with keys, got a list", 1, 1},
      {"\"x\"", "expected an object with keys, got the text \"x\"", 1, 1},
      {"42", "expected an object with keys, got 42", 1, 1},
  }));
  Problem problem = problem_of(c.text);
  INFO(c.text);
  CHECK_THAT(problem.message, Contains(c.message));
  check_place(problem.position, c.line, c.column);
}

TEST_CASE("a line swallowed by a forgotten quote is named as the suspect", "[config][hjson_reader]") {
  Problem problem = problem_of("{\n \"optimizer\": {\"type\": AdamW}\n}");
  CHECK_THAT(problem.message, Contains("a '}' is missing") && Contains("\"AdamW}\" in line 2, column 24"));
}

TEST_CASE("an empty file and one of comments only are called empty", "[config][document]") {
  for (const char* text : {"", " \n\t", "# nothing\n", "/* x */", "\xEF\xBB\xBF"}) {
    CHECK_THAT(problem_of(text).message, Contains("empty") && Contains("{}"));
  }
  CHECK(read_document("{}", Format::kHjson).root->members.empty());
  CHECK(read_document("\xEF\xBB\xBF{a: 1}", Format::kHjson).root->find("a")->integer == 1);
}

TEST_CASE("what is not text is told apart", "[config][document]") {
  CHECK_THAT(problem_of(std::string("PK\x03\x04\x00\x00", 6)).message, Contains("zip archive"));
  CHECK_THAT(problem_of("\xFF\xFE{").message, Contains("UTF-16"));
  CHECK_THAT(problem_of("{a: \"\xC3(\"}").message, Contains("not a text file"));
  check_place(problem_of("{a: 1,\n b: \"\xED\xA0\x80\"}").position, 2, 6);
  CHECK_THAT(problem_of(std::string("{a: \0}", 6)).message, Contains("not a text file"));
}

TEST_CASE("the ending decides between HJSON and YAML", "[config][document]") {
  CHECK(format_of("a/ds.yaml") == Format::kYaml);
  CHECK(format_of("DS.YML") == Format::kYaml);
  CHECK(format_of("ds.json") == Format::kHjson);
  CHECK(format_of("yaml") == Format::kHjson);
}
