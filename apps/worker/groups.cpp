#include "groups.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "rendezvous/own_address.hpp"
#include "runtime/sharding/hierarchical_gather.hpp"

namespace dslaunch::worker {
namespace {

struct NamedGroup {
  std::string name;
  std::vector<int> ranks;
};

// The ranks that share a secondary copy of the parameters: neighbours in the data group (comm/mesh.hpp).
std::optional<NamedGroup> secondary_group(const comm::Mesh& mesh, int rank, int64_t partition_size) {
  const comm::MeshAxes data{.data = true};
  const auto own = runtime::hpz_group(mesh.coordinates(rank).data, mesh.data, partition_size);
  if (!own) return std::nullopt;
  const auto ranks = mesh.group(rank, data);
  const auto first = ranks.begin() + own->group * own->size;
  const int groups_before = mesh.group_index(rank, data) * (mesh.data / own->size);
  return NamedGroup{fmt::format("hpz.{}", groups_before + own->group), {first, first + own->size}};
}

}  // namespace

void WatchedGroups::abort(const std::string& reason) const {
  for (const auto* group : {&mesh.world, &mesh.data, &mesh.pipe, &mesh.tensor, &gather, &secondary}) {
    if (*group) (*group)->abort(reason);
  }
}

void WatchedGroups::open(const rendezvous::LaunchEnv& env, const comm::Mesh& of_job, c10::Device device,
                         const config::Zero& zero, std::chrono::milliseconds hang_limit, rendezvous::Store& store,
                         StatusWriter* status) {
  comm::Watchdog::Options watch_options{.rank = env.rank, .world_size = env.world_size, .host = env.host};
  watch_options.place = comm::describe_place(of_job, env.rank);
  watch_options.times = comm::HangTimes(hang_limit);
  if (status != nullptr) watch_options.show = [status](const std::string& report) { status->set_report(report); };
  comm::CommunicatorOptions options;
  if (env.world_size > 1) options.host = rendezvous::own_address_towards(env.master_addr, env.num_nodes);
  options.device = device.is_cuda() ? device.index() : -1;
  options.timeout = watch_options.times.backend_timeout;

  watch = std::make_unique<comm::Watchdog>(std::move(watch_options), store);
  const comm::Watchdog::BarrierWait barrier(*watch, "groups", "the set-up of the ranks' communicators", "");
  const auto make = [&](const std::string& name, const std::vector<int>& ranks) {
    options.name = name;
    options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), env.rank) - ranks.begin());
    options.size = static_cast<int>(ranks.size());
    auto group = comm::make_communicator(options, store);
    watch->add({group.get(), name, ranks});
    return group;
  };
  mesh.open(of_job, env.rank, make);
  const comm::MeshAxes data{.data = true};
  if (zero.stage == 3 && device.is_cuda()) {
    const bool is_of_world = of_job.data == of_job.size();
    gather = make(is_of_world ? "gather" : fmt::format("gather.{}", of_job.group_index(env.rank, data)),
                  of_job.group(env.rank, data));
  }
  if (const auto own = secondary_group(of_job, env.rank, zero.hpz_partition_size)) {
    secondary = make(own->name, own->ranks);
  }
}

}  // namespace dslaunch::worker
