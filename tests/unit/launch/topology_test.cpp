#include "launch/plan/topology.hpp"

#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temp_dir.hpp"

using namespace dslaunch::launch;
using dslaunch::test::TempDir;

namespace {

// A tree that looks like /sys and /proc.
class FakeRoot {
 public:
  FakeRoot& file(const std::string& path, const std::string& content) {
    std::string full = dir_ / path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    dslaunch::test::write_file(full, content + "\n");
    return *this;
  }
  const std::string& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

// Two sockets, each a node, of 2 cores with 2 threads; all threads of a socket share a cache of level 3.
void add_two_sockets(FakeRoot& root) {
  root.file("sys/devices/system/node/online", "0-1");
  root.file("sys/devices/system/node/node0/cpulist", "0-1,4-5");
  root.file("sys/devices/system/node/node1/cpulist", "2-3,6-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    std::string dir = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
    int core = cpu % 4;
    std::string pair = std::to_string(core) + "," + std::to_string(core + 4);
    root.file(dir + "topology/thread_siblings_list", pair);
    root.file(dir + "topology/physical_package_id", core < 2 ? "0" : "1");
    root.file(dir + "cache/index0/level", "1").file(dir + "cache/index0/type", "Data");
    root.file(dir + "cache/index0/shared_cpu_list", pair);
    root.file(dir + "cache/index1/level", "3").file(dir + "cache/index1/type", "Unified");
    root.file(dir + "cache/index1/shared_cpu_list", core < 2 ? "0-1,4-5" : "2-3,6-7");
    root.file(dir + "cache/index2/level", "9").file(dir + "cache/index2/type", "Instruction");
    root.file(dir + "cache/index2/shared_cpu_list", std::to_string(cpu));
  }
}

}  // namespace

TEST_CASE("cores, caches, packages and nodes are read from the kernel's files", "[launch][topology]") {
  FakeRoot root;
  add_two_sockets(root);
  auto topology = read_topology(root.path(), {1, 2, 5, 7});
  REQUIRE(topology.cpus.size() == 4);
  auto is = [&](size_t at, int number, int core, int cache, int package, int node) {
    const auto& cpu = topology.cpus[at];
    INFO("cpu " << number);
    CHECK(cpu.number == number);
    CHECK(cpu.core == core);
    CHECK(cpu.cache == cache);
    CHECK(cpu.package == package);
    CHECK(cpu.node == node);
  };
  is(0, 1, 1, 0, 0, 0);
  is(1, 2, 2, 2, 1, 1);
  is(2, 5, 1, 0, 0, 0);
  is(3, 7, 3, 2, 1, 1);
  CHECK(topology.quota_cores == 0);
}

TEST_CASE("a machine without topology has one node and no hyperthreads", "[launch][topology]") {
  FakeRoot root;
  auto topology = read_topology(root.path(), {0, 3});
  REQUIRE(topology.cpus.size() == 2);
  CHECK(topology.cpus[1].core == 3);
  CHECK(topology.cpus[1].node == 0);
  CHECK(topology.cpus[1].package == 0);
}

TEST_CASE("a GPU's node is found by its PCI address in every spelling of NVML", "[launch][topology]") {
  FakeRoot root;
  root.file("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1");
  root.file("sys/bus/pci/devices/10001:af:00.0/numa_node", "0");
  root.file("sys/bus/pci/devices/0000:5e:00.0/numa_node", "-1");
  auto places = place_gpus(root.path(), {{"GPU-a", "H", "00000000:3B:00.0"},
                                         {"GPU-b", "H", "0000:3b:00.0"},
                                         {"GPU-c", "H", "10001:AF:00.0"},
                                         {"GPU-d", "H", "00000000:5E:00.0"},
                                         {"GPU-e", "H", "00000000:FF:00.0"},
                                         {"GPU-f", "H"}});
  std::vector<int> nodes;
  for (const auto& place : places) nodes.push_back(place.node);
  CHECK(nodes == std::vector<int>{1, 1, 0, -1, -1, -1});
  CHECK(places[2].uuid == "GPU-c");
}

TEST_CASE("the CPU quota of a cgroup is the smallest of its own and its parents'", "[launch][topology]") {
  FakeRoot root;
  root.file("sys/fs/cgroup/a/cpu.max", "150000 100000");
  root.file("sys/fs/cgroup/a/b/cpu.max", "400000 100000");
  root.file("sys/fs/cgroup/a/b/c/cpu.max", "max 100000");
  CHECK(read_cpu_quota(root.path(), "0::/a/b/c\n") == 1.5);
  CHECK(read_cpu_quota(root.path(), "0::/a/b\n") == 1.5);
  CHECK(read_cpu_quota(root.path(), "0::/other\n") == 0);
  CHECK(read_cpu_quota(root.path(), "0::/\n") == 0);
}

TEST_CASE("cgroups of version 1 and a container's view of them are understood", "[launch][topology]") {
  FakeRoot root;
  root.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000").file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  root.file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1").file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  CHECK(read_cpu_quota(root.path(), "3:cpuset:/x\n4:cpu,cpuacct:/job\n0::/\n") == 2.5);
  // The path is the host's, of which a container sees only the root.
  CHECK(read_cpu_quota(root.path(), "4:cpuacct,cpu:/docker/0123\n") == 2.5);
  CHECK(read_cpu_quota(root.path(), "4:cpuacct:/job\n") == 0);
  root.file("proc/self/cgroup", "4:cpu:/job");
  CHECK(read_topology(root.path(), {0}).quota_cores == 2.5);
  CHECK(read_cpu_quota(root.path(), "nonsense\n::\n4:cpu\n") == 0);
}

TEST_CASE("exactly the CPUs of the process's mask are usable", "[launch][topology]") {
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  auto topology = topology_of_this_process(false);
  CHECK(topology.cpus.size() == static_cast<size_t>(CPU_COUNT(&set)));
  CHECK(std::all_of(topology.cpus.begin(), topology.cpus.end(),
                    [&](const auto& cpu) { return CPU_ISSET(cpu.number, &set); }));
}
