// docs/migrating.md and the program give the same answers about other launchers' options.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "launch/commands/migration.hpp"
#include "support/checkout.hpp"

using namespace dslaunch::launch;

namespace {

// "## NAME" -> its table rows "flag | here | what", without backticks.
std::map<std::string, std::set<std::string>> rows_of_page() {
  std::ifstream page(dslaunch::test::source_file("docs/migrating.md"));
  REQUIRE(page);
  std::map<std::string, std::set<std::string>> sections;
  std::string section, line;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("| `--")) continue;
    size_t close = line.find('`', 3);
    std::string row = line.substr(3, close - 3) + line.substr(close + 1);
    while (!row.empty() && (row.back() == '|' || row.back() == ' ')) row.pop_back();
    CHECK(sections[section].insert(row).second);
  }
  return sections;
}

const char* word(Disposition disposition) {
  switch (disposition) {
    case Disposition::kHonoured:
      return "honoured";
    case Disposition::kRenamed:
      return "renamed";
    case Disposition::kNotNeeded:
      return "not needed";
    case Disposition::kRefused:
      return "refused";
  }
  return "";
}

std::map<std::string, std::set<std::string>> rows_of_program() {
  std::map<std::string, std::set<std::string>> sections;
  for (const auto& flag : migrated_flags()) {
    std::istringstream origins(flag.from);
    for (std::string origin; std::getline(origins >> std::ws, origin, ',');) {
      std::string row = std::string(flag.flag) + " | " + word(flag.disposition);
      if (*flag.text) row += " | " + std::string(flag.text);
      CHECK(sections[origin].insert(row).second);
    }
  }
  return sections;
}

}  // namespace

TEST_CASE("the page on migrating and the program say the same about every option", "[launch][migration]") {
  auto page = rows_of_page();
  auto program = rows_of_program();
  for (const auto* origin : {"deepspeed", "torchrun"}) {
    INFO("section " << origin);
    CHECK(program[origin].size() > 10);
    CHECK(page[origin] == program[origin]);
  }
  CHECK(page.size() == 2);
}
