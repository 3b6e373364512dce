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
  LoadResult result = load_text(text, "fuzz", format, {}, {2, {}});
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

TEST_CASE("a file of more than 16 MiB is refused before it is read", "[config][robustness]") {
  CHECK_THAT(all_lines(load("{}" + std::string(17 << 20, ' '))), Contains("too many for a job file"));
}
