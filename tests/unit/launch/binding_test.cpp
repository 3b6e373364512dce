#include "launch/plan/binding.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using test::expect_error;

namespace {

using Devices = std::vector<std::string>;

// CPUs numbered as Linux does: the first threads of all cores, node after node, then the second ones. Four cores share
// a cache, a package has `nodes_of_package` nodes.
Topology machine(int num_nodes, int cores_of_node, int num_threads, int nodes_of_package = 1) {
  Topology topology;
  int num_cores = num_nodes * cores_of_node;
  for (int number = 0; number < num_cores * num_threads; ++number) {
    int core = number % num_cores, node = core / cores_of_node;
    topology.cpus.push_back({number, core, core / 4 * 4, node / nodes_of_package, node});
  }
  for (int node = 0; num_nodes > 1 && node < num_nodes; ++node) topology.memory_nodes.push_back(node);
  return topology;
}

Topology without(Topology topology, const std::set<int>& numbers) {
  std::erase_if(topology.cpus, [&](const Cpu& cpu) { return numbers.contains(cpu.number); });
  return topology;
}

// Two nodes of 8 cores with 2 threads, 4 GPUs, the first two on node 1.
Topology two_nodes_with_gpus() {
  Topology topology = machine(2, 8, 2);
  topology.gpus = {{"GPU-aa", 1}, {"GPU-bb", 1}, {"GPU-cc", 0}, {"GPU-dd", 0}};
  return topology;
}

std::string text(const std::vector<RankBinding>& plan) {
  std::string all;
  for (const auto& binding : plan) all += (all.empty() ? "" : " | ") + describe(binding);
  return all;
}

std::string planned(BindingKind kind, const Topology& topology, const Devices& devices, std::string core_list = "") {
  return text(plan_binding({kind, std::move(core_list)}, topology, devices));
}

const Devices kTwoCpuRanks(2);

}  // namespace

// ---- threads

TEST_CASE("by default CPU ranks share the physical cores and are not bound", "[launch][binding]") {
  CHECK(planned(BindingKind::kDefault, machine(1, 8, 2), kTwoCpuRanks) ==
        "cpus not bound, 4 threads | cpus not bound, 4 threads");
  CHECK(planned(BindingKind::kDefault, machine(2, 8, 2), Devices(3)) ==
        "cpus not bound, 5 threads | cpus not bound, 5 threads | cpus not bound, 5 threads");
  CHECK(planned(BindingKind::kDefault, machine(1, 2, 1), Devices(1)) == "cpus not bound, 2 threads");
}

TEST_CASE("a rank has at least one thread", "[launch][binding]") {
  auto plan = plan_binding({}, machine(1, 2, 1), Devices(5));
  for (const auto& binding : plan) CHECK(binding.num_threads == 1);
  CHECK(plan.size() == 5);
  CHECK(plan_binding({}, Topology{}, kTwoCpuRanks).size() == 2);  // a machine that tells nothing
}

TEST_CASE("cores outside of the mask do not count, half a core does", "[launch][binding]") {
  // Cores 0-3 gone whole, core 4 has only its second thread left.
  auto topology = without(machine(1, 8, 2), {0, 1, 2, 3, 4, 8, 9, 10, 11});
  CHECK(planned(BindingKind::kDefault, topology, kTwoCpuRanks) ==
        "cpus not bound, 2 threads | cpus not bound, 2 threads");
}

TEST_CASE("the cgroup's time is shared by all ranks", "[launch][binding]") {
  auto topology = machine(1, 8, 2);
  topology.quota_cores = 1.5;
  CHECK(planned(BindingKind::kDefault, topology, Devices(1)) == "cpus not bound, 1 thread");
  topology.quota_cores = 6;
  CHECK(planned(BindingKind::kDefault, topology, kTwoCpuRanks) ==
        "cpus not bound, 3 threads | cpus not bound, 3 threads");
  topology.quota_cores = 64;
  CHECK(planned(BindingKind::kDefault, topology, Devices(1)) == "cpus not bound, 8 threads");
  topology.quota_cores = 2;
  CHECK(planned(BindingKind::kCores, topology, Devices(1)) == "cpus 0-7, 2 threads");
}

// ---- GPUs and their nodes

TEST_CASE("a rank with a GPU runs on the GPU's node", "[launch][binding]") {
  auto topology = two_nodes_with_gpus();
  // All devices of the node: each rank takes the one of its local rank.
  Devices all{"0,1,2,3", "0,1,2,3", "0,1,2,3", "0,1,2,3"};
  CHECK(planned(BindingKind::kDefault, topology, all) ==
        "cpus 8-15,24-31, 4 threads | cpus 8-15,24-31, 4 threads | cpus 0-7,16-23, 4 threads | cpus 0-7,16-23, 4 "
        "threads");
  // One device each, by index and by the beginning of a UUID.
  CHECK(planned(BindingKind::kDefault, topology, {"3", "GPU-b"}) ==
        "cpus 0-7,16-23, 8 threads | cpus 8-15,24-31, 8 threads");
}

TEST_CASE("a rank whose GPU has no known node is not bound, and shares with bound ranks", "[launch][binding]") {
  auto topology = two_nodes_with_gpus();
  topology.gpus[1].node = -1;
  CHECK(planned(BindingKind::kDefault, topology, {"0", "1"}) ==
        "cpus 8-15,24-31, 4 threads | cpus not bound, 8 threads");
  CHECK(planned(BindingKind::kDefault, topology, {"MIG-1", "9"}) ==
        "cpus not bound, 8 threads | cpus not bound, 8 threads");
  topology.gpus.clear();
  CHECK(planned(BindingKind::kDefault, topology, {"0"}) == "cpus not bound, 16 threads");
}

TEST_CASE("ranks are not bound if the machine or the mask has one node", "[launch][binding]") {
  auto one = machine(1, 8, 2);
  one.gpus = {{"GPU-aa", 0}};
  CHECK(planned(BindingKind::kDefault, one, {"0"}) == "cpus not bound, 8 threads");
  std::set<int> node_0;
  for (int cpu = 0; cpu < 8; ++cpu) node_0.insert({cpu, cpu + 16});
  auto narrow = without(two_nodes_with_gpus(), node_0);
  CHECK(planned(BindingKind::kDefault, narrow, {"2", "0"}) == "cpus not bound, 4 threads | cpus not bound, 4 threads");
}

TEST_CASE("a bound rank stays within the mask", "[launch][binding]") {
  auto topology = without(two_nodes_with_gpus(), {8, 24, 9});
  CHECK(planned(BindingKind::kDefault, topology, {"0"}) == "cpus 10-15,25-31, 7 threads");
}

TEST_CASE("binding can be switched off", "[launch][binding]") {
  CHECK(planned(BindingKind::kNone, two_nodes_with_gpus(), {"0", "2"}) ==
        "cpus not bound, 8 threads | cpus not bound, 8 threads");
}

// ---- --bind_cores_to_rank

TEST_CASE("cores are divided equally, in order, with the memory of their node", "[launch][binding]") {
  CHECK(planned(BindingKind::kCores, machine(2, 8, 2), Devices(4)) ==
        "cpus 0-3, memory of NUMA node 0, 4 threads | cpus 4-7, memory of NUMA node 0, 4 threads | "
        "cpus 8-11, memory of NUMA node 1, 4 threads | cpus 12-15, memory of NUMA node 1, 4 threads");
  CHECK(planned(BindingKind::kCores, machine(1, 8, 1), Devices(2)) == "cpus 0-3, 4 threads | cpus 4-7, 4 threads");
}

TEST_CASE("a share over two nodes uses memory of both, and the remainder stays idle", "[launch][binding]") {
  CHECK(planned(BindingKind::kCores, machine(2, 8, 2), Devices(3)) ==
        "cpus 0-4, memory of NUMA node 0, 5 threads | cpus 5-9, 5 threads | cpus 10-14, memory of NUMA node 1, 5 "
        "threads");
}

TEST_CASE("memory is not bound where the kernel forbids it", "[launch][binding]") {
  auto topology = machine(2, 8, 1);
  topology.memory_nodes = {};
  CHECK(planned(BindingKind::kCores, topology, kTwoCpuRanks) == "cpus 0-7, 8 threads | cpus 8-15, 8 threads");
}

TEST_CASE("cores of a list are divided in its order, with their second threads", "[launch][binding]") {
  CHECK(planned(BindingKind::kCores, machine(2, 8, 2), kTwoCpuRanks, "2-3,8-9") ==
        "cpus 2-3, memory of NUMA node 0, 2 threads | cpus 8-9, memory of NUMA node 1, 2 threads");
  CHECK(planned(BindingKind::kCores, machine(1, 2, 2), Devices(1), "0-3") == "cpus 0-3, 4 threads");
}

TEST_CASE("cores outside the mask are not used; a core without its first thread uses the second", "[launch][binding]") {
  auto topology = without(machine(1, 4, 2), {1, 5, 2});
  CHECK(planned(BindingKind::kCores, topology, Devices(3)) == "cpus 0, 1 thread | cpus 6, 1 thread | cpus 3, 1 thread");
}

TEST_CASE("refuses impossible bindings with the numbers", "[launch][binding]") {
  expect_error(ExitCode::kUnavailable, {"--bind_cores_to_rank", "9 rank(s)", "8 core(s)"},
               [] { planned(BindingKind::kCores, machine(1, 8, 2), Devices(9)); });
  expect_error(ExitCode::kUnavailable, {"--bind_core_list 0-1", "3 rank(s)"},
               [] { planned(BindingKind::kCores, machine(1, 8, 1), Devices(3), "0-1"); });
  expect_error(ExitCode::kUnavailable, {"core(s) 2,8-9", "usable: 0-1,3-7"},
               [] { planned(BindingKind::kCores, without(machine(1, 8, 1), {2}), Devices(1), "1-3,8-9"); });
  expect_error(ExitCode::kUsage, {"--bind_core_list 0-3,2", "column 5"}, [] { read_core_list("0-3,2"); });
  expect_error(ExitCode::kUsage, {"expected a core number"}, [] { read_core_list(""); });
}

TEST_CASE("an OpenMP run time that places threads itself contradicts bound cores", "[launch][binding]") {
  std::map<std::string, std::string> env{{"KMP_AFFINITY", "compact"}};
  expect_error(ExitCode::kContradiction, {"KMP_AFFINITY='compact'"}, [&] {
    check_binding_environment({BindingKind::kCores, ""}, env);
  });
  check_binding_environment({}, env);
  check_binding_environment({BindingKind::kCores, ""}, {});
}

// ---- --numa_binding

TEST_CASE("parses torchrun's binding kinds", "[launch][binding]") {
  CHECK(read_numa_binding("node") == BindingKind::kNode);
  CHECK(read_numa_binding("socket") == BindingKind::kSocket);
  CHECK(read_numa_binding("exclusive") == BindingKind::kExclusive);
  CHECK(read_numa_binding("core-complex") == BindingKind::kCoreComplex);
  CHECK(read_numa_binding("core_complex") == BindingKind::kCoreComplex);
  CHECK(read_numa_binding("none") == BindingKind::kNone);
  expect_error(ExitCode::kUsage, {"--numa_binding nodes", "exclusive"}, [] { read_numa_binding("nodes"); });
}

TEST_CASE("node: all CPUs of the GPU's node; CPU ranks are spread", "[launch][binding]") {
  auto topology = two_nodes_with_gpus();
  CHECK(planned(BindingKind::kNode, topology, {"1", "2"}) == "cpus 8-15,24-31, 8 threads | cpus 0-7,16-23, 8 threads");
  CHECK(planned(BindingKind::kNode, topology, Devices(3)) ==
        "cpus 0-7,16-23, 4 threads | cpus 0-7,16-23, 4 threads | cpus 8-15,24-31, 8 threads");
  CHECK(planned(BindingKind::kNode, machine(1, 2, 2), {"0"}) == "cpus 0-3, 2 threads");
}

TEST_CASE("socket: all nodes of the GPU's package", "[launch][binding]") {
  auto topology = machine(4, 4, 1, 2);
  topology.gpus = {{"GPU-aa", 3}, {"GPU-bb", 0}};
  CHECK(planned(BindingKind::kSocket, topology, {"0", "1"}) == "cpus 8-15, 8 threads | cpus 0-7, 8 threads");
}

TEST_CASE("exclusive: the ranks of a node share its cores with both their threads", "[launch][binding]") {
  auto topology = two_nodes_with_gpus();
  topology.gpus[2].node = 1;
  CHECK(planned(BindingKind::kExclusive, topology, {"0", "1", "2", "3"}) ==
        "cpus 8-10,24-26, 3 threads | cpus 11-13,27-29, 3 threads | cpus 14-15,30-31, 2 threads | "
        "cpus 0-7,16-23, 8 threads");
  expect_error(ExitCode::kUnavailable, {"NUMA node 0", "2 rank(s) on 1 core(s)"},
               [] { planned(BindingKind::kExclusive, machine(2, 1, 2), Devices(4)); });
}

TEST_CASE("core-complex: one cache for each rank in turn, the larger ones first", "[launch][binding]") {
  auto topology = without(two_nodes_with_gpus(), {8, 24});
  CHECK(planned(BindingKind::kCoreComplex, topology, {"0", "1", "3"}) ==
        "cpus 12-15,28-31, 4 threads | cpus 9-11,25-27, 3 threads | cpus 0-3,16-19, 4 threads");
  CHECK(planned(BindingKind::kCoreComplex, machine(1, 4, 1), kTwoCpuRanks) ==
        "cpus 0-3, 2 threads | cpus 0-3, 2 threads");
}

TEST_CASE("refuses to bind to a GPU without a usable node", "[launch][binding]") {
  auto topology = two_nodes_with_gpus();
  topology.gpus[0].node = -1;
  expect_error(ExitCode::kUnavailable, {"--numa_binding node", "GPU 0 of local rank 1", "does not say"}, [&] {
    planned(BindingKind::kNode, topology, {"1", "0"});
  });
  topology.gpus[0].node = 5;
  expect_error(ExitCode::kUnavailable, {"NUMA node 5", "usable: 0-31"},
               [&] { planned(BindingKind::kSocket, topology, {"0"}); });
}

// ---- any machine

TEST_CASE("on any machine: CPUs of the mask only, at least one per rank, no overlap for exclusive kinds",
          "[launch][binding]") {
  std::mt19937 random(11);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int refused = 0, planned_ones = 0;
  for (int round = 0; round < 3000; ++round) {
    int num_nodes = 1 + below(4);
    Topology topology = machine(num_nodes, 1 + below(9), 1 + below(2), 1 + below(2));
    std::set<int> holes;
    for (int n = below(20); n > 0; --n) holes.insert(below(static_cast<int>(topology.cpus.size())));
    topology = without(std::move(topology), holes);
    if (below(3) == 0) topology.quota_cores = (1 + below(40)) / 4.0;
    Devices devices(1 + below(8));
    for (int gpu = 0; gpu < 8; ++gpu) topology.gpus.push_back({"GPU-" + std::to_string(gpu), below(num_nodes)});
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      if (below(3) > 0) devices[rank] = std::to_string(rank);
    }
    auto kind = static_cast<BindingKind>(below(7));
    std::set<int> usable;
    for (const auto& cpu : topology.cpus) usable.insert(cpu.number);
    std::vector<RankBinding> plan;
    try {
      plan = plan_binding({kind, ""}, topology, devices);
    } catch (const UserError&) {
      ++refused;
      CHECK(kind >= BindingKind::kCores);
      continue;
    }
    ++planned_ones;
    REQUIRE(plan.size() == devices.size());
    std::set<int> taken;
    for (const auto& binding : plan) {
      INFO(text(plan));
      CHECK(binding.num_threads >= 1);
      CHECK(binding.num_threads <= std::max<int>(1, static_cast<int>(usable.size())));
      if (topology.quota_cores > 0) {
        CHECK(binding.num_threads <= std::max(1.0, topology.quota_cores / static_cast<double>(plan.size())));
      }
      if (kind >= BindingKind::kCores && !usable.empty()) CHECK_FALSE(binding.cpus.empty());
      for (int cpu : binding.cpus) {
        CHECK(usable.contains(cpu));
        bool new_one = taken.insert(cpu).second;
        if (kind == BindingKind::kCores || kind == BindingKind::kExclusive) CHECK(new_one);
      }
    }
  }
  CHECK(refused > 50);
  CHECK(planned_ones > 500);
}
