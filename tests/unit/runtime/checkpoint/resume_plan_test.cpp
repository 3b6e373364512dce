#include "runtime/checkpoint/resume_plan.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::runtime;
using Catch::Matchers::Contains;

namespace {

ResumeOffer node(int leader, std::vector<OfferedCheckpoint> checkpoints, std::optional<int64_t> latest = std::nullopt) {
  ResumeOffer offer;
  offer.leader = leader;
  offer.host = "node" + std::to_string(leader);
  offer.latest = latest;
  offer.checkpoints = std::move(checkpoints);
  return offer;
}

OfferedCheckpoint checkpoint(int64_t step, std::vector<CheckpointFile> elsewhere = {}, const std::string& id = "same") {
  return {step, "/c/" + std::to_string(step), id, 2, std::move(elsewhere)};
}

const CheckpointFile kRank0{.name = "rank_00000.safetensors", .host = "node0"},
    kRank1{.name = "rank_00001.safetensors", .host = "node1"};

std::vector<int64_t> steps_of(const ResumePlan& plan) {
  std::vector<int64_t> out;
  for (const auto& candidate : plan.candidates) out.push_back(candidate.step);
  return out;
}

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("the step that latest names comes first, then older ones, then those of another future",
          "[runtime][checkpoint][resume_plan]") {
  const std::vector<OfferedCheckpoint> all{checkpoint(10), checkpoint(20), checkpoint(30), checkpoint(40)};
  CHECK(steps_of(plan_resume({node(0, all, 20)})) == Steps{20, 10, 40, 30});
  CHECK(steps_of(plan_resume({node(0, all)})) == Steps{40, 30, 20, 10});
  CHECK(steps_of(plan_resume({node(0, all, 35)})) == Steps{30, 20, 10, 40});
}

TEST_CASE("shards that some node lacks travel from the lowest rank that has them",
          "[runtime][checkpoint][resume_plan]") {
  const auto plan =
      plan_resume({node(0, {checkpoint(10, {kRank1})}), node(4, {checkpoint(10, {kRank0})}), node(8, {})});
  REQUIRE(plan.candidates.size() == 1);
  const auto& candidate = plan.candidates.front();
  CHECK(candidate.shard_senders == std::map<std::string, int>{{kRank0.name, 0}, {kRank1.name, 4}});
  CHECK_FALSE(candidate.manifest_is_everywhere);
  CHECK(candidate.manifest_sender == 0);
  CHECK(plan_resume({node(0, {checkpoint(10)}), node(4, {checkpoint(10)})}).candidates.front().shard_senders.empty());
}

TEST_CASE("the same step of two runs is two checkpoints", "[runtime][checkpoint][resume_plan]") {
  const auto plan =
      plan_resume({node(0, {checkpoint(10, {kRank1}, "mine")}), node(1, {checkpoint(10, {kRank0}, "his")})});
  CHECK(plan.candidates.empty());
  REQUIRE(plan.skipped.size() == 2);
  CHECK_THAT(plan.skipped[0] + plan.skipped[1], Contains("rank_00000.safetensors of node0 is on no host") &&
                                                    Contains("rank_00001.safetensors of node1 is on no host"));
  CHECK(plan.has_damaged);
}

TEST_CASE("torn checkpoints are named with their host, and one that would have been taken is told",
          "[runtime][checkpoint][resume_plan]") {
  auto first = node(0, {checkpoint(10), checkpoint(20)}), second = node(1, {checkpoint(10), checkpoint(20)});
  second.incomplete = {"'/c/30': it has no manifest.json"};
  auto plan = plan_resume({first, second});
  CHECK(plan.skipped == std::vector<std::string>{"node1: '/c/30': it has no manifest.json"});
  CHECK_FALSE(plan.newest_is_damaged);
  second.damaged = {5};
  CHECK_FALSE(plan_resume({first, second}).newest_is_damaged);
  second.damaged = {5, 30};
  CHECK(plan_resume({first, second}).newest_is_damaged);
}

TEST_CASE("offers and plans survive their way through the store", "[runtime][checkpoint][resume_plan]") {
  auto offer = node(3, {checkpoint(10, {kRank1})}, 10);
  offer.incomplete = {"'x': \"y\""};
  offer.damaged = {7};
  CHECK(to_text(offer_from(to_text(offer))) == to_text(offer));
  const auto plan = plan_resume({offer, node(5, {checkpoint(10, {kRank0})})});
  CHECK(to_text(plan_from(to_text(plan))) == to_text(plan));
  CHECK(plan_from(to_text(plan)).candidates.front().shard_senders == plan.candidates.front().shard_senders);
}
