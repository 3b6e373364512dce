#include "hostfile/host_range.hpp"

#include <catch2/catch.hpp>

using dslaunch::hostfile::expand_host_range;
using Names = std::vector<std::string>;

TEST_CASE("ranges expand as Slurm expands them", "[hostfile][host_range]") {
  CHECK(*expand_host_range("n1") == Names{"n1"});
  CHECK(*expand_host_range("foo[8-11]") == Names{"foo8", "foo9", "foo10", "foo11"});
  CHECK(*expand_host_range("n[01-03,7]") == Names{"n01", "n02", "n03", "n7"});
  CHECK(*expand_host_range("r[1-2]-n[1-2]") == Names{"r1-n1", "r1-n2", "r2-n1", "r2-n2"});
  CHECK(*expand_host_range("n[098-101].cluster") ==
        Names{"n098.cluster", "n099.cluster", "n100.cluster", "n101.cluster"});
  CHECK(*expand_host_range("n[3,1,3]") == Names{"n3", "n1", "n3"});
}

TEST_CASE("a broken range says what is wrong and where", "[hostfile][host_range]") {
  auto check = [](const char* text, const char* message, size_t offset) {
    auto expansion = expand_host_range(text);
    REQUIRE_FALSE(expansion.ok());
    CHECK_THAT(expansion.error().message, Catch::Contains(message));
    CHECK(expansion.error().offset == offset);
  };
  check("n[1-", "never closed", 1);
  check("n1]", "without a '['", 2);
  check("n[3-1]", "descending", 2);
  check("n[1,]", "'' is not a number", 4);
  check("n[]", "'' is not a number", 2);
  check("n[1-2-3]", "'2-3' is not a number", 4);
  check("n[1,x]", "'x' is not a number", 4);
  check("n[1-999999999]", "more than 65536", 2);
  check("n[1-65536,1]", "more than 65536", 10);
  check("n[1-300][1-300]", "more than 65536", 8);
  check("n[1-99999999999999999999]", "not a number", 4);
}

TEST_CASE("a long text is not copied into every name of a range", "[hostfile][host_range]") {
  const std::string text(10 << 20, 'x');
  CHECK(*expand_host_range(text) == Names{text});
  for (const auto& range : {"n[1-60000]" + text, text + "[1-60000]", "[1-60000]" + text + "[1]"}) {
    CHECK_THAT(expand_host_range(range).error().message, Catch::Contains("more than 255 characters around a range"));
  }
}
