#include "launch/plan/hosts.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/format.hpp"
#include "base/unique_fd.hpp"
#include "base/write_all.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// A hostfile as `--hostfile <(...)` passes it: it can be read once.
class PipedHostfile {
 public:
  explicit PipedHostfile(const std::string& text) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    output_ = UniqueFd(ends[0]);
    const UniqueFd input(ends[1]);
    REQUIRE(write_all(input.get(), text) == 0);
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", output_.get()); }

 private:
  UniqueFd output_;
};

LaunchOptions on_hosts_of(const PipedHostfile& hostfile) {
  LaunchOptions options;
  options.device = DeviceChoice::kCpu;
  options.hosts.hostfile = hostfile.path();
  return options;
}

ResolvedHosts resolve(const LaunchOptions& options) {
  const HostList list = list_hosts(options, find_source(options));
  return resolve_hosts(options, list, DeviceUser::kAnyProgram);
}

}  // namespace

TEST_CASE("a hostfile is read once", "[launch][hosts]") {
  const PipedHostfile hostfile("localhost slots=2\n");
  const ResolvedHosts hosts = resolve(on_hosts_of(hostfile));
  CHECK(hosts.allocation.world_size() == 2);
  CHECK(hosts.reach == std::vector{Reach::kPipe});
  CHECK(hosts.master_port == 0);
}

TEST_CASE("a hostfile is read once on each of the nodes that the user starts", "[launch][hosts]") {
  const PipedHostfile hostfile("10.0.0.1 slots=1\n10.0.0.2 slots=3\n");
  LaunchOptions options = on_hosts_of(hostfile);
  options.hosts.no_ssh = true;
  SECTION("on node rank 0, which launches the job") {
    options.hosts.node_rank = 0;
    options.hosts.master_port = 29511;
    const ResolvedHosts hosts = resolve(options);
    CHECK(hosts.allocation.world_size() == 4);
    CHECK(hosts.reach == std::vector{Reach::kPipe, Reach::kNodeJoin});
    CHECK(hosts.master_port == 29511);
  }
  SECTION("on another node") {
    options.hosts.node_rank = 1;
    const HostList list = list_hosts(options, find_source(options));
    REQUIRE(list.membership);
    CHECK(list.membership->num_nodes == 2);
    CHECK(list.membership->master_addr == "10.0.0.1");
    CHECK(offer_of_this_node(options, list).num_slots == 0);
  }
}

TEST_CASE("slots that make up no whole model stay idle, from the last host on", "[launch][hosts]") {
  ResolvedHosts hosts;
  for (const char* name : {"a", "b", "c"}) hosts.allocation.hosts.push_back({.name = name, .slots = {0, 1}});
  hosts.reach = {Reach::kPipe, Reach::kSsh, Reach::kSsh};
  ResolvedHosts same = hosts;
  CHECK(leave_out_surplus(same, 3) == 0);
  CHECK(leave_out_surplus(same, 7) == 0);
  CHECK(same.allocation.world_size() == 6);

  ResolvedHosts fewer = hosts;
  CHECK(leave_out_surplus(fewer, 5) == 1);
  REQUIRE(fewer.allocation.hosts.size() == 3);
  CHECK(fewer.allocation.hosts[2].slots == std::vector<int>{0});

  CHECK(leave_out_surplus(hosts, 4) == 2);
  REQUIRE(hosts.allocation.hosts.size() == 2);
  CHECK(hosts.reach == std::vector<Reach>{Reach::kPipe, Reach::kSsh});
  CHECK(hosts.allocation.world_size() == 4);

  hosts.master_port = 29500;
  CHECK(leave_out_surplus(hosts, 3) == 0);
  CHECK(hosts.allocation.world_size() == 4);
}
