#include "launch/plan/launch_plan.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "launch/plan/tensor_groups.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using dslaunch::hostfile::Allocation;

static const Allocation kTwoHosts{"hostfile h", {{"a", "", {}, {0, 2}}, {"b", "", {}, {1}}}};

TEST_CASE("ranks count through the hosts in order", "[launch][launch_plan]") {
  auto nodes = plan_nodes(kTwoHosts, DeviceRule::kNone, {});
  REQUIRE(nodes.size() == 2);
  CHECK((nodes[0].ranks[1].rank == 1 && nodes[0].ranks[1].local_rank == 1 && nodes[0].ranks[1].slot == 2));
  CHECK((nodes[1].node_rank == 1 && nodes[1].ranks[0].rank == 2 && nodes[1].ranks[0].local_rank == 0));
  CHECK(nodes[0].ranks[0].env.empty());
}

TEST_CASE("a worker sees only its own device, by its name in CUDA_VISIBLE_DEVICES", "[launch][launch_plan]") {
  auto nodes = plan_nodes(kTwoHosts, DeviceRule::kOnePerRank, {"GPU-x", "5", "7"});
  CHECK(nodes[0].ranks[0].env.at("CUDA_VISIBLE_DEVICES") == "GPU-x");
  CHECK(nodes[0].ranks[1].env.at("CUDA_VISIBLE_DEVICES") == "7");
  CHECK(nodes[1].ranks[0].env.at("CUDA_VISIBLE_DEVICES") == "5");
}

TEST_CASE("a program sees all devices of its node", "[launch][launch_plan]") {
  auto nodes = plan_nodes(kTwoHosts, DeviceRule::kAllOfNode, {"0", "1", "2"});
  for (const auto& rank : nodes[0].ranks) CHECK(rank.env.at("CUDA_VISIBLE_DEVICES") == "0,2");
  CHECK(nodes[1].ranks[0].env.at("CUDA_VISIBLE_DEVICES") == "1");
}

TEST_CASE("the printed plan shows who holds which stage", "[launch][launch_plan]") {
  LaunchPlan plan;
  plan.kind = JobKind::kRun;
  plan.nodes = plan_nodes({"hostfile h", {{"a", "", {}, {0, 1}}, {"b", "", {}, {0, 1}}}}, DeviceRule::kNone, {});
  plan.mesh = {.data = 2, .pipe = 2};
  const std::string text = plan_text(plan);
  for (const char* part :
       {"mesh       2 data ranks x 2 pipeline stages\n", "rank 0    a ", "slot 0, stage 0, data rank 0\n",
        "local rank 1, slot 1, stage 0, data rank 1\n", "rank 2    b ", "stage 1, data rank 0\n"}) {
    CHECK_THAT(text, Catch::Contains(part));
  }
  auto json = nlohmann::json::parse(plan_json(plan));
  CHECK(json["mesh"] == nlohmann::json{{"data", 2}, {"pipe", 2}, {"tensor", 1}});
  CHECK(json["ranks"][3]["mesh"] == nlohmann::json{{"data", 1}, {"pipe", 1}, {"tensor", 0}});
  plan.mesh = {.data = 4};
  CHECK_THAT(plan_text(plan), !Catch::Contains("stage") && !Catch::Contains("mesh"));
  CHECK(nlohmann::json::parse(plan_json(plan))["ranks"][3]["mesh"]["data"] == 3);
}

TEST_CASE("the printed plan shows tensor ranks where there are several", "[launch][launch_plan]") {
  LaunchPlan plan;
  plan.kind = JobKind::kRun;
  plan.nodes = plan_nodes({"", {{"a", "", {}, {0, 1}}, {"b", "", {}, {0, 1}}}}, DeviceRule::kNone, {});
  plan.mesh = {.pipe = 2, .tensor = 2};
  CHECK_THAT(plan_text(plan), Catch::Contains("mesh       1 data rank x 2 pipeline stages x 2 tensor ranks\n") &&
                                  Catch::Contains("stage 1, data rank 0, tensor rank 1\n"));
}

TEST_CASE("tensor groups that span hosts are named with what they cost", "[launch][launch_plan]") {
  const auto warning = [](const std::vector<int>& ranks_of_hosts, int tensor) {
    Allocation hosts;
    for (const int ranks : ranks_of_hosts) {
      const std::string name(1, static_cast<char>('a' + hosts.hosts.size()));
      hosts.hosts.push_back({name, "", {}, std::vector<int>(static_cast<size_t>(ranks))});
    }
    LaunchPlan plan;
    plan.nodes = plan_nodes(hosts, DeviceRule::kNone, {});
    plan.mesh = comm::make_mesh(plan.world_size(), 1, tensor);
    return tensor_groups_over_hosts(plan);
  };
  CHECK(warning({4, 4}, 2).empty());
  CHECK(warning({8}, 8).empty());
  CHECK(warning({3, 3}, 1).empty());
  CHECK_THAT(warning({4, 4}, 8), Catch::StartsWith("1 of 1 tensor groups lie on several hosts, the first ranks 0-7 on "
                                                   "a to b: every layer exchanges its activations over the network") &&
                                     Catch::EndsWith("(--tp) 4 every group lies on one host"));
  CHECK_THAT(warning({3, 5}, 2),
             Catch::StartsWith("1 of 4 tensor groups lie on several hosts, the first ranks 2-3 on a to b") &&
                 Catch::EndsWith("host a has 3 ranks: with a multiple of 2 on each host every "
                                 "group lies on one"));
  CHECK_THAT(warning({2, 6}, 4), Catch::EndsWith("(--tp) 2 every group lies on one host"));
}

TEST_CASE("the printed plan is complete and contains no secret", "[launch][launch_plan]") {
  LaunchPlan plan;
  plan.job_id = "job-7";
  plan.argv = {"python", "a b.py"};
  plan.env = {{"SECRET", "inherited"}};
  plan.set_env = {{"K", "v w"}};
  plan.nodes = plan_nodes(kTwoHosts, DeviceRule::kNone, {});
  std::string text = plan_text(plan);
  for (const char* part : {"job-7", "python 'a b.py'", "K='v w'", "rank 2", "(chosen at start)"}) {
    CHECK_THAT(text, Catch::Contains(part));
  }
  CHECK_THAT(text, !Catch::Contains("SECRET"));
  auto json = nlohmann::json::parse(plan_json(plan));
  CHECK(json["world_size"] == 3);
  CHECK(json["argv"] == nlohmann::json({"python", "a b.py"}));
  CHECK(json["master_port"].is_null());
  CHECK(json["mesh"].is_null());
  CHECK(json["ranks"][2]["host"] == "b");
  CHECK(json["env"]["K"] == "v w");
}
