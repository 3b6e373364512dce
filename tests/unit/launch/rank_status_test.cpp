#include "launch/supervisor/rank_status.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "comm/hang_report.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

std::vector<RankRecord> records_of(int world) {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < world; ++rank)
    records.push_back({.rank = rank, .host = rank < 2 ? "a" : "b", .pid = 100 + rank});
  return records;
}

// In the `number`-th call of the group that all ranks form; waits there, or not.
std::string report(uint64_t number, bool waits, const std::vector<int>& members = {0, 1, 2}) {
  comm::RankReport out;
  out.host = "a";
  out.activity = "step 9";
  out.last_calls["world"] = number;
  if (waits) out.waits.push_back({"world", number, "all-reduce", "", members, 6s});
  return comm::encode(out);
}

RankSample sample(int rank, const std::string& hang_report, char state = 'S') {
  RankSample out;
  out.rank = rank;
  out.process_state = state;
  out.hang_report = hang_report;
  out.step = 8;
  out.step_us = 1500;
  return out;
}

}  // namespace

TEST_CASE("the table names the ranks that a waiting rank waits for", "[launch][rank_status]") {
  RankStatusTable table;
  table.take("a", {0, 1},
             {.request = 1,
              .load_percent = 250,
              .num_cores = 4,
              .memory_bytes = 100,
              .available_bytes = 50,
              .ranks = {sample(0, report(5, true)), sample(1, report(4, false), 'T')}});
  auto records = records_of(4);
  records[3].cause = spawn::ExitCause{};
  // Rank 2's agent does not answer.
  const Json json = Json::parse(table.document(records, {}, "J", "running"));
  const Json& ranks = json.at("ranks");
  REQUIRE(ranks.size() == 4);
  CHECK(ranks[0].at("state") == "waiting");
  CHECK(ranks[0].at("waiting_for") == Json::parse("[1,2]"));
  CHECK(ranks[0].at("waiting_in") == "all-reduce");
  CHECK(ranks[0].at("waiting_s") == 6);
  CHECK(ranks[0].at("step_ms") == 1.5);
  CHECK(ranks[0].at("gpu_percent").is_null());
  CHECK(ranks[1].at("state") == "stopped");
  CHECK(ranks[1].at("activity") == "step 9");
  CHECK(ranks[2].at("state") == "no answer");
  CHECK(ranks[2].at("step").is_null());
  CHECK(ranks[3].at("state") == "ended");
  CHECK(json.at("hosts") ==
        Json::parse(R"([{"host":"a","load":2.5,"cores":4,"mem_bytes":100,"mem_available_bytes":50}])"));
  const auto samples = table.samples(4);
  CHECK(samples[0].waiting == true);
  CHECK(samples[1].waiting == false);
  CHECK(samples[1].step == 8);
  CHECK_FALSE(samples[2].step);
}

TEST_CASE("the ranks of an exec are as their agents see them", "[launch][rank_status]") {
  RankStatusTable table;
  table.take("a", {0, 1}, {.request = 1, .ranks = {sample(0, ""), sample(1, "")}});
  const Json json = Json::parse(
      table.document(records_of(2), {{0, RankState::kIdle, 0}, {1, RankState::kBlocked, 101}}, "J", "running"));
  CHECK(json.at("ranks")[0].at("state") == "idle");
  CHECK(json.at("ranks")[1].at("state") == "blocked");
}

TEST_CASE("a rank that tells nonsense, or of another agent, harms nothing", "[launch][rank_status]") {
  RankStatusTable table;
  table.take("a", {0, 1},
             {.request = 1,
              .ranks = {sample(0, "nonsense"), sample(1, report(1, true, {0, 99})), sample(2, report(1, true))}});
  const Json json = Json::parse(table.document(records_of(3), {}, "J", "running"));
  CHECK(json.at("ranks")[0].at("state") == "busy");
  CHECK(json.at("ranks")[1].at("state") == "busy");
  CHECK(json.at("ranks")[2].at("state") == "no answer");
  CHECK(table.samples(2).size() == 2);
}
