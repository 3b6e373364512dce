#include "launch/plan/cpu_list.hpp"

#include <catch2/catch.hpp>
#include <random>

using namespace dslaunch::launch;
using Cpus = std::vector<int>;

TEST_CASE("numbers and ranges are read", "[launch][cpu_list]") {
  CHECK(read_cpu_list("")->empty());
  CHECK(*read_cpu_list("7") == Cpus{7});
  CHECK(*read_cpu_list("0-3,8") == Cpus{0, 1, 2, 3, 8});
  CHECK(*read_cpu_list("0-0,2-3") == Cpus{0, 2, 3});
}

TEST_CASE("a syntax error has its offset", "[launch][cpu_list]") {
  struct SyntaxError {
    const char* text;
    size_t offset;
    const char* part;
  };
  auto wrong = GENERATE(SyntaxError{"a", 0, "expected a core"}, SyntaxError{"0,", 2, "expected a core"},
                        SyntaxError{"1-", 2, "expected a core"}, SyntaxError{"-1", 0, "expected a core"},
                        SyntaxError{"0 1", 1, "' '"}, SyntaxError{"0-3,2", 4, "follows core 3"},
                        SyntaxError{"4,0", 2, "ascend"}, SyntaxError{"3-1", 0, "descending"},
                        SyntaxError{"0-99999999999", 2, "out of range"}, SyntaxError{"9000", 0, "out of range"},
                        SyntaxError{"0-1x", 3, "'x'"}, SyntaxError{"0,,1", 2, "expected a core"});
  const auto cpus = read_cpu_list(wrong.text);
  INFO(wrong.text);
  REQUIRE_FALSE(cpus.ok());
  CHECK(cpus.error().offset == wrong.offset);
  CHECK_THAT(cpus.error().message, Catch::Matchers::Contains(wrong.part));
}

TEST_CASE("a written list can be read back, and is short", "[launch][cpu_list]") {
  CHECK(cpu_list_text({}).empty());
  CHECK(cpu_list_text({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Cpus cpus;
    for (int cpu = 0; cpu < 100; ++cpu) {
      if (random() % 3 != 0) cpus.push_back(cpu);
    }
    CHECK(*read_cpu_list(cpu_list_text(cpus)) == cpus);
  }
}
