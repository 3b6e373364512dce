#include "launch/plan/describe_job.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

LaunchPlan two_nodes() {
  LaunchPlan plan;
  plan.job_id = "job-1";
  plan.kind = JobKind::kRun;
  plan.env = {{"HOME", "/home/me"}, {"K", "v"}};
  plan.exported_env = {{"K", "v"}};
  plan.argv = {"/bin/dsworker", "train", "--device", "auto"};
  plan.device_rule = DeviceRule::kOnePerRank;
  plan.nodes =
      plan_nodes({"hostfile h", {{"here", "", {}, {0}}, {"there", "bob", 2222, {1, 3}}}}, DeviceRule::kNone, {});
  plan.nodes[1].reach = Reach::kSsh;
  plan.preflight = {"dsworker 1", "/m.pt", 10, 20};
  plan.files = {{"/ds.json", "{}"}};
  return plan;
}

AgentHello with_devices(std::vector<std::string> devices, std::string error = "") {
  AgentHello hello;
  hello.device_error = std::move(error);
  hello.devices = std::move(devices);
  return hello;
}

}  // namespace

TEST_CASE("remote ranks get the exported variables, local ranks the whole environment", "[launch][describe_job]") {
  LaunchPlan plan = two_nodes();
  JobDescription here = describe_job(plan, plan.nodes[0], {1, 2}, "10.0.0.1");
  JobDescription there = describe_job(plan, plan.nodes[1], {1, 2}, "10.0.0.1");
  CHECK(here.environment_base == EnvironmentBase::kNothing);
  CHECK(here.env.at("HOME") == "/home/me");
  CHECK((here.files.empty() && here.preflight.model.empty() && here.silence_limit.count() == 0));
  CHECK(here.heartbeat_interval.count() == 2000);  // it is heard, although it does not count our silence
  CHECK(there.environment_base == EnvironmentBase::kAgents);
  CHECK(there.env == std::map<std::string, std::string>{{"K", "v"}});
  CHECK((there.files.size() == 1 && there.preflight.model_bytes == 10 && there.silence_limit.count() == 20000));
  CHECK((there.world_size == 3 && there.num_nodes == 2 && there.node_rank == 1 && there.host == "there"));
  REQUIRE(there.ranks.size() == 2);
  CHECK((there.ranks[0].rank == 1 && there.ranks[0].local_rank == 0));
  CHECK(there.master_addr == "10.0.0.1");
}

TEST_CASE("an agent's address is the one it reports first, else any of its addresses", "[launch][describe_job]") {
  AgentHello hello;
  CHECK(numeric_address_of(hello).empty());
  hello.addresses = {"fd00::7", "fd00::8"};
  CHECK(numeric_address_of(hello) == "fd00::7");
  hello.address = "10.0.0.7";
  CHECK(numeric_address_of(hello) == "10.0.0.7");
}

TEST_CASE("the master address is the given one, the loopback, or that of node rank 0", "[launch][describe_job]") {
  LaunchPlan plan = two_nodes();
  CHECK(choose_master_address(plan, "10.1.1.1") == "10.1.1.1");
  CHECK(choose_master_address(plan, "") == "here");
  plan.nodes[1].reach = Reach::kPipe;
  CHECK(choose_master_address(plan, "10.1.1.1") == "127.0.0.1");
  plan.master_addr = "named";
  CHECK(choose_master_address(plan, "10.1.1.1") == "named");
}

TEST_CASE("the hosts' devices decide between GPUs and CPUs", "[launch][describe_job]") {
  LaunchPlan plan = two_nodes();
  plan.device = "auto";
  SECTION("all have some") {
    resolve_devices(plan, {with_devices({"GPU-a"}), with_devices({"4", "5", "6", "7"})});
    CHECK(plan.device == "cuda");
    CHECK(plan.argv.back() == "cuda");
    CHECK(plan.nodes[0].ranks[0].env.at("CUDA_VISIBLE_DEVICES") == "GPU-a");
    CHECK(plan.nodes[1].ranks[1].env.at("CUDA_VISIBLE_DEVICES") == "7");
  }
  SECTION("none has any") {
    resolve_devices(plan, {with_devices({}), with_devices({})});
    CHECK(plan.device == "cpu");
    CHECK(plan.argv.back() == "cpu");
    CHECK(plan.nodes[1].ranks[0].env.empty());
  }
  SECTION("some have none") {
    test::expect_error(ExitCode::kUnavailable, {"there has 4", "here has 0"}, [&] {
      resolve_devices(plan, {with_devices({}), with_devices({"0", "1", "2", "3"})});
    });
  }
  SECTION("some have none that answer") {
    test::expect_error(ExitCode::kUnavailable, {"there has 4", "here has 0 (the driver is broken)"}, [&] {
      resolve_devices(plan, {with_devices({}, "the driver is broken"), with_devices({"0", "1", "2", "3"})});
    });
  }
  SECTION("none has any that answers: no CPU job by accident") {
    test::expect_error(ExitCode::kUnavailable, {"there has 0 (the driver is broken)", "--device cpu"}, [&] {
      resolve_devices(plan, {with_devices({}), with_devices({}, "the driver is broken")});
    });
  }
  SECTION("fewer than slots are used") {
    test::expect_error(ExitCode::kUnavailable, {"slot 3 of there", "has 2 (GPU 2 is lost)"}, [&] {
      resolve_devices(plan, {with_devices({"0"}), with_devices({"0", "1"}, "GPU 2 is lost")});
    });
  }
}
