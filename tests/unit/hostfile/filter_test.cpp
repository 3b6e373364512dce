#include "hostfile/filter.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;
using Catch::Contains;
using Catch::EndsWith;

namespace {

const std::vector<Host> kPool{{"w1", "", {}, {0, 1, 2, 3}}, {"w2", "bob", 2222, {0, 1, 2, 3}}, {"::1", "", {}, {0, 1}}};

// "w1:0,1 w2:3": hosts and slots that are left.
std::string text(const std::vector<Host>& hosts) {
  std::string out;
  for (const auto& host : hosts) {
    out += (out.empty() ? "" : " ") + host.name + "=";
    for (size_t i = 0; i < host.slots.size(); ++i) out += (i ? "," : "") + std::to_string(host.slots[i]);
  }
  return out;
}

std::string include(std::string_view filter) {
  return text(apply_filter(FilterKind::kInclude, filter, kPool));
}
std::string exclude(std::string_view filter) {
  return text(apply_filter(FilterKind::kExclude, filter, kPool));
}

std::string refusal(FilterKind kind, std::string_view filter, const std::vector<Host>& hosts = kPool) {
  try {
    apply_filter(kind, filter, hosts);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kBadInput);
    return error.what();
  }
  FAIL("accepted: " << filter);
  return {};
}

}  // namespace

TEST_CASE("include keeps what it names, in the order of the hostfile", "[hostfile][filter]") {
  CHECK(include("w2:2,0@w1:1") == "w1=1 w2=0,2");
  CHECK(include("w1") == "w1=0,1,2,3");
  CHECK(include("w2@w1:3") == "w1=3 w2=0,1,2,3");
  CHECK(include("w1:1,1,0") == "w1=0,1");
  CHECK(include("[::1]:1") == "::1=1");
  CHECK(include("[::1]") == "::1=0,1");
}

TEST_CASE("nodes that are repeated join their slots", "[hostfile][filter]") {
  CHECK(include("w1:0@w1:2") == "w1=0,2");
  CHECK(include("w1@w1:2") == "w1=2");  // as in DeepSpeed
}

TEST_CASE("names in other letters are the same hosts", "[hostfile][filter]") {
  CHECK(include("W1:0@w1:2") == "w1=0,2");
  CHECK(exclude("W1@W2.:0") == "w2=1,2,3 ::1=0,1");
}

TEST_CASE("exclude drops what it names", "[hostfile][filter]") {
  CHECK(exclude("w1:0,3") == "w1=1,2 w2=0,1,2,3 ::1=0,1");
  CHECK(exclude("w1@[::1]:0") == "w2=0,1,2,3 ::1=1");
  CHECK(exclude("w1:0,1,2,3") == "w2=0,1,2,3 ::1=0,1");
}

TEST_CASE("user and port survive a filter", "[hostfile][filter]") {
  auto left = apply_filter(FilterKind::kInclude, "w2:0", kPool);
  REQUIRE(left.size() == 1);
  CHECK(left[0].user == "bob");
  CHECK(left[0].port == 2222);
}

TEST_CASE("unknown hosts and slots are named with what there is", "[hostfile][filter]") {
  CHECK_THAT(refusal(FilterKind::kInclude, "w3"), Contains("no host 'w3'") && Contains("w1") && Contains("w2"));
  CHECK_THAT(refusal(FilterKind::kExclude, "v1"), Contains("no host 'v1' (did you mean 'w1'"));
  CHECK_THAT(refusal(FilterKind::kInclude, "w1:4"), Contains("host 'w1' has no slot 4 (it has slots 0-3)"));
  CHECK_THAT(refusal(FilterKind::kExclude, "[::1]:7"), Contains("host '::1' has no slot 7 (it has slots 0,1)"));
}

TEST_CASE("every mistake of a filter is reported with its column", "[hostfile][filter]") {
  std::string message = refusal(FilterKind::kInclude, "w1:x@nobody:1@@w2:0,,9");
  CHECK_THAT(message, Contains("--include") && Contains("column 4: 'x' is not a slot number") &&
                          Contains("column 6: no host 'nobody'") && Contains("column 15: a host name is missing") &&
                          Contains("column 21: '' is not a slot number") && Contains("no slot 9"));
  CHECK_THAT(refusal(FilterKind::kInclude, "w1:0:1"), Contains("more than one ':'"));
  CHECK_THAT(refusal(FilterKind::kInclude, "w1:0-3"), Contains("'0-3' is not a slot number"));
  CHECK_THAT(refusal(FilterKind::kInclude, "w1:-1"), Contains("'-1' is not a slot number"));
  CHECK_THAT(refusal(FilterKind::kInclude, "w1:"), Contains("'' is not a slot number"));
  CHECK_THAT(refusal(FilterKind::kInclude, "w1 w2"), Contains("blanks are not allowed"));
  CHECK_THAT(refusal(FilterKind::kInclude, "[::1]x"), Contains("'x' after the address"));
}

TEST_CASE("the report of many errors in a filter is truncated", "[hostfile][filter]") {
  std::vector<Host> hosts;
  std::string unknown, known, slots = "n1:0";
  for (int i = 0; i < 50'000; ++i) {
    hosts.push_back({"n" + std::to_string(i), "", {}, {0}});
    known += (i ? "@n" : "n") + std::to_string(i);
    unknown += (i ? "@m" : "m") + std::to_string(i);
    slots += "," + std::to_string(i);
  }
  CHECK(apply_filter(FilterKind::kInclude, known, hosts).size() == hosts.size());
  for (const auto& filter : {unknown, slots}) {
    CHECK_THAT(refusal(FilterKind::kInclude, filter, hosts), EndsWith("\n  and more"));
  }
}

TEST_CASE("a filter that leaves nothing is refused", "[hostfile][filter]") {
  CHECK_THAT(refusal(FilterKind::kExclude, "w1@w2@[::1]"), Contains("--exclude") && Contains("leaves no host"));
}

TEST_CASE("the highest slot of a filter is found", "[hostfile][filter]") {
  CHECK(highest_slot_named("localhost:1,7@x:3") == 7);
  CHECK(highest_slot_named("localhost") == -1);
  CHECK(highest_slot_named("") == -1);
}
