
#include <algorithm>
#include <catch2/catch.hpp>

#include "config/readers.hpp"
#include "load_support.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

Problem problem_of(const std::string& text) {
  auto result = read_document(text, Format::kYaml);
  INFO(text);
  REQUIRE(result.problems.size() == 1);
  return result.problems.front();
}

}  // namespace

TEST_CASE("YAML makes the same tree as its JSON twin", "[config][yaml_reader]") {
  auto yaml = read_yaml(
      "a: 1\nb: -2.5\nc: true\nd: null\ne: plain text\nf: \"2\"\ng: [1, 5e8]\nh:\n  i: 1e-3\n  j: ~\n  k:\nl: "
      "'''q'''\n");
  auto json = read_hjson(
      R"({"a":1,"b":-2.5,"c":true,"d":null,"e":"plain text","f":"2","g":[1,5e8],"h":{"i":1e-3,"j":null,"k":null},"l":"'q'"})");
  REQUIRE(yaml.problems.empty());
  REQUIRE(yaml.root);
  REQUIRE(json.root);
  CHECK(same_content(*yaml.root, *json.root));
}

TEST_CASE("YAML's own ways to write numbers and words are known", "[config][yaml_reader]") {
  auto root = *read_yaml("a: +5\nb: 0x10\nc: .5\nd: 2.\ne: True\nf: NULL\ng: yes\nh: 01\ni: !!str 7\n").root;
  CHECK(root.find("a")->integer == 5);
  CHECK(root.find("b")->integer == 16);
  CHECK(root.find("c")->number == 0.5);
  CHECK(root.find("d")->number == 2.0);
  CHECK(root.find("e")->boolean);
  CHECK(root.find("f")->is_null());
  CHECK(root.find("g")->text == "yes");
  CHECK(root.find("h")->text == "01");
  CHECK(root.find("i")->text == "7");
}

TEST_CASE("what YAML has no number for stays a text", "[config][yaml_reader]") {
  for (std::string text : {"+-5", "++5", "0x-5", "0x", "0x1.8", "0xffffffffffffffff", "+", ".", "+."}) {
    auto root = *read_yaml("a: " + text + "\n").root;
    CHECK(root.find("a")->text == text);
  }
}

TEST_CASE("YAML values know their places", "[config][yaml_reader]") {
  auto root = *read_yaml("# x\na: 1\nb:\n  - 10\n  - 20\n").root;
  CHECK(root.members[0].position.line == 2);
  CHECK(root.members[0].value.position.column == 4);
  CHECK(root.members[1].value.items[1].position.line == 5);
  CHECK(root.members[1].value.items[1].position.column == 5);
}

TEST_CASE("repeated keys are problems in YAML too", "[config][yaml_reader]") {
  auto result = read_yaml("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n");
  REQUIRE(result.problems.size() == 2);
  CHECK(result.problems[0].position.line == 4);
  CHECK_THAT(result.problems[1].message, Contains("'a' is given twice") && Contains("line 1, column 1"));
}

TEST_CASE("anchors are copied and circles refused", "[config][yaml_reader]") {
  auto root = *read_yaml("a: &x {b: 1}\nc: *x\n").root;
  CHECK(root.find("c")->find("b")->integer == 1);
  CHECK_THAT(problem_of("a: &x [*x]\n").message, Contains("alias"));
  CHECK_THAT(problem_of("a: &x {b: 1}\nc:\n  <<: *x\n").message, Contains("merge keys"));
}

TEST_CASE("YAML that explodes through aliases is refused", "[config][yaml_reader]") {
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j ? ", *a" : "*a") + std::to_string(i - 1);
    bomb += "]\n";
  }
  CHECK_THAT(problem_of(bomb).message, Contains("too many values"));
}

TEST_CASE("YAML whose texts explode through aliases or nested anchors is refused", "[config][yaml_reader]") {
  const std::string text(1 << 20, 'x');
  std::string aliases = "a: &a " + text + "\nb: [", anchors = "a: ";
  for (int i = 0; i < 20; ++i) aliases += "*a, ";
  for (int i = 0; i < 20; ++i) anchors += "&a" + std::to_string(i) + " [";
  CHECK_THAT(problem_of(aliases + "]\n").message, Contains("too much text"));
  CHECK_THAT(problem_of(anchors + text + std::string(20, ']') + "\n").message, Contains("too much text"));
}

TEST_CASE("a tag says of which type a value is, or is refused", "[config][yaml_reader]") {
  auto root = *read_yaml("a: !!int '3'\nb: !!bool \"true\"\nc: !!null ''\nd: !!str 1\ne: !!seq [1]\nf: ! 1\n").root;
  CHECK(root.find("a")->integer == 3);
  CHECK(root.find("b")->boolean);
  CHECK(root.find("c")->is_null());
  CHECK(root.find("d")->text == "1");
  CHECK(root.find("e")->items.size() == 1);
  CHECK(root.find("f")->text == "1");
  for (std::string value :
       {"!x 1", "!!binary aGk=", "!!set {b}", "!!omap []", "!x [1]", "!!python/name:os.system ''"}) {
    CHECK_THAT(problem_of("a: " + value + "\n").message, Contains("unsupported tag '") && Contains("leave it out"));
  }
}

TEST_CASE("a key is what stands there, not the number that it may be", "[config][yaml_reader]") {
  auto root = *read_yaml("1.0: a\n1: b\n0x1: c\n1e3: d\n~: e\nTrue: f\n").root;
  std::string keys;
  for (const auto& member : root.members) keys += member.key + " ";
  CHECK(keys == "1.0 1 0x1 1e3 null True ");
}

TEST_CASE("escapes that yaml-cpp makes no text of are refused, others are read", "[config][yaml_reader]") {
  for (std::string text : {"a\\0b", "\\N", "\\_"}) {
    CHECK_THAT(problem_of("a: \"" + text + "\"\n").message, Contains("unsupported escape") && Contains("\\N or \\_"));
  }
  CHECK(read_yaml("a: \"\\x85\\u00a0\\L\"\n").root->find("a")->text == "\u0085\u00a0\u2028");
}

TEST_CASE("a quote that is open at the end of the file is an error, whatever that ends with", "[config][yaml_reader]") {
  for (std::string end : {"", "\n", "\n\n", "\r\n", "\n  ", "\n\t", "  "}) {
    const Problem problem = problem_of("a: \"x\nb: 1" + end);
    CHECK_THAT(problem.message, Contains("not YAML"));
    CHECK(problem.position.line <= 2 + std::count(end.begin(), end.end(), '\n'));
    CHECK_THAT(problem_of("a: 'x\nb: 1" + end).message, Contains("not YAML"));
    CHECK(read_yaml("a: \"x\"" + end).root->find("a")->text == "x");
  }
  CHECK(read_yaml("a: |+\n  x\n\n").root->find("a")->text == "x\n\n");
  CHECK(read_yaml("a: |\n  x").root->find("a")->text == "x");
}

TEST_CASE("broken YAML says where", "[config][yaml_reader]") {
  Problem problem = problem_of("a: 1\n b: [\n");
  CHECK_THAT(problem.message, Contains("not YAML"));
  CHECK(problem.position.line >= 2);
  CHECK_THAT(problem_of("- 1\n- 2\n").message, Contains("expected an object with keys, got a list"));
  CHECK_THAT(problem_of("a: 1\n---\nb: 2\n").message, Contains("second document"));
  CHECK_THAT(problem_of("# nothing\n").message, Contains("empty"));
  CHECK_THAT(problem_of("? [a]\n: 1\n").message, Contains("a key must be"));
}

TEST_CASE("a job file and its YAML twin resolve to the same", "[config][yaml_reader]") {
  auto json = load(
      R"({"train_batch_size": 32, "bf16": {"enabled": true}, "optimizer": {"type": "SGD", "params": {"lr": 1e-3}}})",
      4);
  auto yaml =
      load_yaml("train_batch_size: 32\nbf16:\n  enabled: true\noptimizer:\n  type: SGD\n  params: {lr: 1e-3}\n", 4);
  REQUIRE(json.ok());
  REQUIRE(yaml.ok());
  CHECK(yaml.config.batch.micro_batch == json.config.batch.micro_batch);
  CHECK(yaml.config.precision == Precision::kBf16);
  CHECK(yaml.config.optimizer.lr == 1e-3);
  CHECK(yaml.config.optimizer.type == OptimizerType::kSgd);
  CHECK_THAT(all_lines(load_yaml("zero_optimization:\n  stage: 1\n  overlap_com: true\n")),
             Contains("ds.yaml:3:3: unknown key 'overlap_com' in 'zero_optimization' (did you mean 'overlap_comm'?)"));
}
