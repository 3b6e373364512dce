#include "launch/commands/migration.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <string>

using namespace dslaunch::launch;

TEST_CASE("every flag is listed once, in one spelling, with a text unless it is honoured", "[launch][migration]") {
  std::set<std::string> seen;
  for (const auto& flag : migrated_flags()) {
    INFO(flag.flag);
    CHECK(seen.insert(flag.flag).second);
    CHECK(std::string(flag.flag).find('-', 2) == std::string::npos);
    bool answered = migration_answer(flag.flag).has_value();
    CHECK(answered == (flag.disposition != Disposition::kHonoured));
    if (answered) CHECK_FALSE(std::string(flag.text).empty());
  }
}

TEST_CASE("accepts both spellings and a value after '='", "[launch][migration]") {
  for (const char* option : {"--rdzv_endpoint", "--rdzv-endpoint", "--rdzv-endpoint=a:1"}) {
    auto answer = migration_answer(option);
    REQUIRE(answer.has_value());
    CHECK_THAT(*answer, Catch::Contains("--master_addr"));
  }
}

TEST_CASE("an unknown flag has no text", "[launch][migration]") {
  CHECK_FALSE(migration_answer("--num_gpu").has_value());
  CHECK_FALSE(migration_answer("").has_value());
}
