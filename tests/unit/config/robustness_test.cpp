#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "config/report.hpp"
#include "load_support.hpp"
#include "support/checkout.hpp"

using namespace dslaunch::config;
using Catch::Matchers::Contains;

namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

const std::string kJsonSeed = slurp(dslaunch::test::source_file("tests/data/guide_configs/guide2_04.json")) +
                              "# c\n/* d */ extra: '''\n x\n ''' // e\n";
const std::string kYamlSeed =
    slurp(dslaunch::test::source_file("configs/zero1_adamw.yaml")) + "x: &a [1, {b: 'c'}]\ny: *a\nz: |\n  t\n";

// Loads, reports, and wants a verdict; what it must not do is crash, hang or throw.
void survives(const std::string& text, Format format) {
  LoadResult result = load_text(text, "fuzz", format, {}, {2});
  CHECK((result.ok() || !result.issues.front().message.empty()));
  CHECK(!check_json(result).empty());
}

}  // namespace

TEST_CASE("a file cut off anywhere gives an error or a job, never a crash", "[config][robustness]") {
  for (size_t length = 0; length <= kJsonSeed.size(); length += 3)
    survives(kJsonSeed.substr(0, length), Format::kHjson);
  for (size_t length = 0; length <= kYamlSeed.size(); ++length) survives(kYamlSeed.substr(0, length), Format::kYaml);
}

TEST_CASE("random changes to a file never crash the readers", "[config][robustness]") {
  std::mt19937 random(20240607);
  const std::string spice = "{}[],:\"'#/*\\\n\r\t -&!|>%@`?<~0e9.\x7F\x01\xC3\xA9\xFF";
  for (auto [seed, format] : {std::pair(kJsonSeed, Format::kHjson), std::pair(kYamlSeed, Format::kYaml)}) {
    for (int round = 0; round < 1500; ++round) {
      std::string text = seed;
      for (unsigned change = 0; change < 1 + random() % 8; ++change) {
        size_t at = random() % text.size();
        if (random() % 3 == 0) {
          text.erase(at, 1 + random() % 5);
          if (text.empty()) text = "x";
        } else if (random() % 2 == 0) {
          text[at] = spice[random() % spice.size()];
        } else {
          text.insert(at, 1 + random() % 3, spice[random() % spice.size()]);
        }
      }
      survives(text, format);
    }
  }
}

TEST_CASE("garbage bytes are no job", "[config][robustness]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 400, '\0');
    for (char& c : text) c = static_cast<char>(round % 2 ? random() : 32 + random() % 95);
    survives(text, Format::kHjson);
    survives(text, Format::kYaml);
  }
}

TEST_CASE("deep nesting ends at a limit with its place", "[config][robustness]") {
  for (size_t depth : {200u, 5000u, 1'000'000u}) {
    CHECK_THAT(all_lines(load("{a: " + std::string(depth, '['))), Contains("nested deeper than 128 levels"));
    std::string objects;
    for (size_t i = 0; i < std::min<size_t>(depth, 5000); ++i) objects += "{a:";
    CHECK_THAT(all_lines(load(objects)), Contains("nested deeper than 128 levels"));
  }
  CHECK_THAT(all_lines(load_yaml("a: " + std::string(5000, '[') + std::string(5000, ']'))), Contains("nested deeper"));
  std::string good = "{quantize_training: " + std::string(100, '[') + std::string(100, ']') + "}";
  CHECK(load(good).ok());
}

TEST_CASE("a file of more values than any job has, or longer keys, is refused with the place", "[config][robustness]") {
  std::string values, nested;
  for (int i = 0; i < 200'001; ++i) values += "1,", nested += "[],";
  for (const auto& text : {"{a: [" + values + "]}", "{a: [" + nested + "]}"}) {
    CHECK_THAT(all_lines(load(text)), Contains("ds.json:1:") && Contains("more than 200000 values"));
    CHECK_THAT(all_lines(load_yaml(text)), Contains("ds.yaml:1:") && Contains("too many values"));
  }
  const std::string key(1025, 'k');
  CHECK_THAT(all_lines(load("{a: 1, " + key + ": 1}")),
             Contains("ds.json:1:8: a key of 1025 bytes is too long (at most 1024)"));
  CHECK_THAT(all_lines(load_yaml("? " + key + "\n: 1\n")),
             Contains("ds.yaml:1:3: a key of 1025 bytes is too long (at most 1024)"));
}

// Each of these took hours once.
TEST_CASE("a hostile file takes no longer than its length asks for", "[config][robustness]") {
  CHECK(!load("{a: x" + std::string(8 << 20, ',') + "\n}").ok());
  std::string keys;
  for (int i = 0; i < 190'000; ++i) keys += "key" + std::to_string(i) + ": 1\n";
  const LoadResult result = load(keys);
  CHECK(result.issues.size() == 21);
  CHECK(lines_of(result).back() == "189980 more errors are not listed");
  CHECK_THAT(check_text(result), Catch::Matchers::EndsWith("ds.json: 190000 errors\n"));
  auto groups = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "g" + std::to_string(i) + ": {match: [\"a\"]}\n";
    return load("{optimizer: {param_groups: {" + text + "}}}");
  };
  CHECK_THAT(explain_json(groups(1000)), Contains("\"optimizer.param_groups.g999.match\""));
  CHECK(lines_of(groups(60'000)) ==
        std::vector<std::string>{"ds.json:1:14: 'optimizer.param_groups' has 60000 entries, more than any job (at most "
                                 "1000)"});
  std::string twice;
  for (int i = 0; i < 190'000; ++i) twice += "steps_per_print: 1\n";
  CHECK(lines_of(load(twice)).back() == "189979 more errors are not listed");
  CHECK(lines_of(load(twice + "{")).back() == "189980 more errors are not listed");
}

TEST_CASE("a file of more than 16 MiB is refused before it is read", "[config][robustness]") {
  CHECK_THAT(all_lines(load("{}" + std::string(17 << 20, ' '))), Contains("too many for a job file"));
}
