#include "base/json_depth.hpp"

#include <catch2/catch.hpp>
#include <string>

using dslaunch::nests_deeper;

TEST_CASE("lists and objects count as levels, brackets in texts do not", "[base][json_depth]") {
  CHECK(!nests_deeper("", 0));
  CHECK(!nests_deeper("1", 0));
  CHECK(nests_deeper("[]", 0));
  CHECK(!nests_deeper("[[], {}, []]", 2));
  CHECK(nests_deeper(R"([{"a": []}])", 2));
  CHECK(!nests_deeper(R"({"[[{": "]\"[[\\"})", 1));
  CHECK(nests_deeper(R"(["\\", [[]]])", 2));
  CHECK(nests_deeper(std::string(1'000'000, '['), 999'999));
}
