// Any bytes as what names hosts: a hostfile; a filter over its hosts; lines NAME=VALUE as the variables of Slurm and of
// other clusters, and each value by itself as a list of Slurm's. An error of the user's comes out, or hosts with slots.
#include <cstdlib>

#include "base/error.hpp"
#include "base/split.hpp"
#include "hostfile/cluster_environment.hpp"
#include "hostfile/filter.hpp"
#include "hostfile/hostfile.hpp"
#include "hostfile/slurm.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;

namespace {

void require(bool good) {
  if (!good) std::abort();
}

template <class Read>
void attempt(Read read) {
  try {
    read();
  } catch (const UserError&) {
  }
}

void require_hosts(const std::vector<Host>& hosts) {
  require(!hosts.empty());
  for (const auto& host : hosts) require(is_host_name(host.name) && !host.slots.empty());
}

void read_hosts(std::string_view text, const std::string& filter) {
  std::vector<Host> hosts{{"node1", {}, {}, first_slots(8)}, {"node2", {}, {}, first_slots(4)}};
  attempt([&] {
    for (auto& entry : parse_hostfile(text, "fuzz")) {
      require(!entry.host.name.empty() && !entry.host.slots.empty());
      hosts.push_back(std::move(entry.host));
    }
  });
  for (auto kind : {FilterKind::kInclude, FilterKind::kExclude}) {
    attempt([&] { require(!apply_filter(kind, filter, hosts).empty()); });
  }
  names_of_filter(filter);
  highest_slot_named(filter);
}

void read_list(const std::string& list) {
  attempt([&] { require(!expand_nodelist(list, "LIST").empty()); });
  attempt([&] { require(!expand_repeats(list, "LIST").empty()); });
  attempt([&] { require(count_gres(list, "LIST") >= 0); });
  require(count_device_list(list) >= 0);
}

void read_variables(const Environment& environment) {
  attempt([&] {
    SlurmSituation situation = read_slurm(environment);
    if (situation.kind == SlurmKind::kNone) return;
    require_hosts(situation.allocation.hosts);
    require(situation.node_rank >= 0 && situation.node_rank < 1 << 16);
    describe(situation);
    if (situation.slots_open) learn_gpus(situation, "n1 8\nn2 8\n");
    require_hosts(situation.allocation.hosts);
  });
  attempt([&] { read_kubeflow(environment, {}, 8); });
  attempt([&] { read_mpi(environment, {}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> lines = split(text, '\n');
  read_hosts(text, lines.back());
  Environment environment;
  for (const auto& line : lines) {
    const size_t equals = line.find('=');
    if (equals == line.npos) continue;
    environment[line.substr(0, equals)] = line.substr(equals + 1);
  }
  read_variables(environment);
  read_list(lines.front().substr(lines.front().find('=') + 1));
  return 0;
}
