#include "launch/supervisor/stack_request.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;
using Json = nlohmann::json;

namespace {

std::vector<RankRecord> four_ranks() {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank)
    records.push_back({.rank = rank, .host = rank < 2 ? "a" : "b", .pid = 100 + rank});
  return records;
}

const std::vector<PlannedRank> kOfA{{.rank = 0, .env = {}, .placement = {}}, {.rank = 1, .env = {}, .placement = {}}};
const std::vector<PlannedRank> kOfB{{.rank = 2, .env = {}, .placement = {}}, {.rank = 3, .env = {}, .placement = {}}};

RankStack stack(int rank, const std::string& text, const std::string& note = "") {
  return {rank, 100 + rank, "gdb", text, note};
}

}  // namespace

TEST_CASE("equal stacks are grouped, and missing stacks have a reason", "[launch][stacks]") {
  auto records = four_ranks();
  StackRequest request(7, 1);
  for (int rank : {0, 1, 2}) request.expect(rank);
  records[3].cause = spawn::ExitCause{};
  request.miss(3, "it has ended");
  request.take(kOfA, {1, {stack(0, "in wait"), stack(1, "in wait", "a note")}, ""});
  CHECK_FALSE(request.is_complete());
  SECTION("an agent answers") {
    request.take(kOfB, {1, {}, "no memory left"});
    REQUIRE(request.is_complete());
    const Json document = Json::parse(request.document(records));
    REQUIRE(document.at("stacks").size() == 1);
    const Json& group = document.at("stacks")[0];
    CHECK(group.at("ranks") == Json::parse(R"([{"rank":0,"host":"a","pid":100},{"rank":1,"host":"a","pid":101}])"));
    CHECK(group.at("source") == "gdb");
    CHECK(group.at("text") == "in wait");
    CHECK(group.at("notes") == Json::parse(R"(["a note"])"));
    CHECK(document.at("missing") == Json::parse(R"([{"rank":2,"host":"b","ended":false,"reason":"no memory left"},
                                                    {"rank":3,"host":"b","ended":true,"reason":"it has ended"}])"));
  }
  SECTION("a rank ends before its agent looks") {
    request.take(kOfB, {1, {}, ""});
    CHECK(Json::parse(request.document(records)).at("missing")[0].at("reason") == "it has just ended");
  }
  SECTION("an agent does not answer") {
    const Json missing = Json::parse(request.document(records)).at("missing")[0];
    CHECK(missing.at("rank") == 2);
    CHECK_THAT(missing.at("reason").get<std::string>(), Catch::StartsWith("the agent on b did not answer within 35 s"));
  }
}
