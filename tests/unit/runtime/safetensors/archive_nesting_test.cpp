// Each row is text of N parts; what nests is deeper than 1,000 levels when it has 2,000, and not when it has 100.
#include "runtime/state/archive_nesting.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

std::string repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

std::string u32(size_t number) {
  std::string out;
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(number >> shift);
  return out;
}

std::string text(const std::string& value) {
  return "X" + u32(value.size()) + value;
}

struct Row {
  const char* what;
  std::function<std::string(size_t)> make;
};

const std::string kStart = "\x80\x02";

// Each list is appended to when it is inside the one before it, which the memo recalls.
std::string lists_from_outside(size_t count) {
  std::string out = kStart + "(]r" + u32(0);
  for (size_t i = 0; i < count; ++i) out += "j" + u32(i) + "]r" + u32(i + 1) + "a";
  return out + "t.";
}

std::string type_tag(const std::string& type) {
  return kStart + "ctorch.jit._pickle\nrestore_type_tag\n(]" + text(type) + "tR.";
}

const Row kDeepPickles[] = {
    {"lists", [](size_t n) { return kStart + repeat("]", n) + repeat("a", n - 1) + "."; }},
    {"lists of several items", [](size_t n) { return kStart + repeat("](K\1", n) + repeat("e", n) + "."; }},
    {"lists, the outermost first", lists_from_outside},
    {"tuples", [](size_t n) { return kStart + "N" + repeat("\x85", n) + "."; }},
    {"tuples of a mark", [](size_t n) { return kStart + repeat("(", n) + "N" + repeat("t", n) + "."; }},
    {"dicts", [](size_t n) { return kStart + repeat("}K\1", n) + "N" + repeat("s", n) + "."; }},
    {"keys", [](size_t n) { return kStart + "}" + "N" + repeat("\x85", n) + "Ns."; }},
    {"objects", [](size_t n) { return kStart + repeat("c__torch__\nA\n)\x81", n) + "N" + repeat("b", n) + "."; }},
    {"calls", [](size_t n) { return kStart + repeat("c__torch__\nA\n", n) + ")" + repeat("R", n) + "."; }},
    {"a list in itself, which holds lists",
     [](size_t n) { return kStart + "]q\1" + repeat("]", n) + "h\1" + repeat("a", n) + "."; }},
    {"a type tag", [](size_t n) { return type_tag(repeat("List[", n) + "int" + repeat("]", n)); }},
    {"a class's name", [](size_t n) { return kStart + "c__torch__\n" + repeat("-", n) + "A\n)\x81}b."; }},
    {"a pickle that ends early", [](size_t n) { return kStart + repeat("]", n) + repeat("a", n - 1); }},
};

std::string statement(const std::string& expression) {
  return "def f(x):\n  y = " + expression + "\n  return y\n";
}

std::string blocks(const std::string& head, size_t count) {
  std::string out = "def f(x):\n";
  for (size_t i = 1; i <= count; ++i) out += std::string(i, ' ') + head + ":\n";
  return out + std::string(count + 1, ' ') + "x = 1\n";
}

const Row kDeepCode[] = {
    {"signs", [](size_t n) { return statement(repeat("-", n) + "x"); }},
    {"negations", [](size_t n) { return statement(repeat("not ", n) + "x"); }},
    {"parentheses", [](size_t n) { return statement(repeat("(", n) + "x" + repeat(")", n)); }},
    {"lists", [](size_t n) { return statement(repeat("[", n) + "x" + repeat("]", n)); }},
    {"calls in calls", [](size_t n) { return statement(repeat("f(1, ", n) + "x" + repeat(", 1)", n)); }},
    {"calls of calls", [](size_t n) { return statement("x" + repeat("(1)", n)); }},
    {"sums", [](size_t n) { return statement("x" + repeat(" + x", n)); }},
    {"sums after brackets", [](size_t n) { return statement("f(" + repeat("x + ", n) + "x, 1)"); }},
    {"powers", [](size_t n) { return statement("x" + repeat("**x", n)); }},
    {"members", [](size_t n) { return statement("x" + repeat(".y", n)); }},
    {"subscripts", [](size_t n) { return statement("x" + repeat("[0]", n)); }},
    {"conditional expressions", [](size_t n) { return statement(repeat("x if x else ", n) + "x"); }},
    {"types", [](size_t n) { return "class A(Module):\n  a : " + repeat("List[", n) + "int" + repeat("]", n) + "\n"; }},
    {"ifs", [](size_t n) { return blocks("if x", n); }},
    {"loops", [](size_t n) { return blocks("while x", n); }},
    {"conditions", [](size_t n) { return "def f(x):\n  if x:\n    y = 1\n" + repeat("  elif x:\n    y = 1\n", n); }},
    {"conditions of several values",
     [](size_t n) { return "def f(x):\n  if x:\n    y = 1\n" + repeat("  elif x, x:\n    y = 1\n", n); }},
    {"early exits", [](size_t n) { return "def f(x):\n" + repeat("  if x:\n    return x\n", n); }},
    {"lines that are continued", [](size_t n) { return statement("x" + repeat(" + \\\n x", n)); }},
};

}  // namespace

TEST_CASE("deep pickles are found, whatever nests in them", "[runtime][archive_nesting]") {
  for (const auto& row : kDeepPickles) {
    INFO(row.what);
    CHECK(pickle_nests_deeper(row.make(2000), 1000));
    CHECK(pickle_nests_deeper(row.make(200'000), 1000));
    CHECK_FALSE(pickle_nests_deeper(row.make(100), 1000));
  }
}

TEST_CASE("deep code is found with its line, whatever nests in it", "[runtime][archive_nesting]") {
  for (const auto& row : kDeepCode) {
    INFO(row.what);
    CHECK(line_nesting_deeper(row.make(2000), 1000).has_value());
    CHECK_FALSE(line_nesting_deeper(row.make(100), 1000).has_value());
  }
  CHECK(line_nesting_deeper(statement(repeat("-", 2000) + "x"), 1000) == 2);
}

TEST_CASE("what is long is not deep", "[runtime][archive_nesting]") {
  const size_t n = 5000;
  CHECK_FALSE(pickle_nests_deeper(kStart + "](" + repeat("]", n) + "e.", 1000));
  CHECK_FALSE(pickle_nests_deeper(kStart + "](" + repeat("]q\1h\1", n) + "e.", 1000));
  CHECK_FALSE(pickle_nests_deeper(kStart + "(" + text(repeat("[", n)) + text(repeat("[", n)) + "t.", 1000));
  CHECK_FALSE(pickle_nests_deeper(type_tag("Dict[str, List[int]]"), 1000));
  for (const auto& code : {statement("[" + repeat("[1, x.y], ", n) + "]"), "def f(x):\n" + repeat("  x = -x\n", n),
                           statement("'" + repeat("((", n) + "'"), statement("1 # " + repeat("((", n)),
                           repeat("def f(x):\n  if x:\n    y = 1\n  elif x:\n    y = 2\n  return y\n", n),
                           "def f(x):\n" + repeat("  if x:\n    y = 1\n  elif x:\n    y = 2\n", n),
                           "class A(Module):\n" + repeat("  def f(self):\n    return self\n", n)}) {
    INFO(code.substr(0, 100));
    CHECK_FALSE(line_nesting_deeper(code, 100).has_value());
  }
}

TEST_CASE("damaged pickles and code are read to the damage, and never beyond the text", "[runtime][archive_nesting]") {
  for (const auto& row : kDeepPickles) {
    const std::string whole = row.make(20);
    for (size_t end = 0; end < whole.size(); ++end) {
      CHECK_FALSE(pickle_nests_deeper(std::string(whole.data(), end), 1000));
      auto damaged = whole;
      damaged[end] = static_cast<char>(damaged[end] ^ 0x5a);
      CHECK_FALSE(pickle_nests_deeper(damaged, 1000));
    }
  }
  for (const char* code : {"", ")", "x = (", "def f(x):\n   y\n  z\n", "x = 'a", "x = $"}) {
    CHECK_FALSE(line_nesting_deeper(code, 100).has_value());
  }
}

TEST_CASE("the records of an archive that LibTorch would read are checked, under any case of their names",
          "[runtime][archive_nesting]") {
  const auto check = [](const std::string& record, const std::string& bytes) {
    ZipMember member;
    member.name = record;
    member.size = bytes.size();
    member.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    require_shallow({member}, "m.pt");
  };
  const std::string pickle = kDeepPickles[0].make(2000), code = kDeepCode[0].make(2000);
  for (const char* record : {"m/data.pkl", "m/constants.pkl", "m/DATA.PKL"}) {
    test::expect_error(ExitCode::kBadInput,
                       {"cannot read model 'm.pt': its record '" + std::string(record) +
                        "' nests values more than 1000 levels deep: it is damaged, or made to exhaust the stack"},
                       [&] { check(record, pickle); });
  }
  test::expect_error(
      ExitCode::kBadInput,
      {"its record 'm/code/__torch__.py' nests blocks and expressions more than 500 levels deep in line 2"},
      [&] { check("m/code/__torch__.py", code); });
  check("m/data/0", pickle);
  check("m/extra/notes", code);
}
