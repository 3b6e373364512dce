#include "groups.hpp"

#include <utility>
#include <vector>

#include "base/format.hpp"
#include "rendezvous/own_address.hpp"
#include "runtime/sharding/hierarchical_gather.hpp"

namespace dslaunch::worker {
namespace {

std::vector<int> ranks_from(int first, int count) {
  std::vector<int> ranks;
  for (int rank = first; rank < first + count; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

void Groups::abort(const std::string& reason) const {
  for (const auto* group : {&world, &gather, &secondary}) {
    if (*group) (*group)->abort(reason);
  }
}

void Groups::open(const rendezvous::LaunchEnv& env, c10::Device device, const config::Zero& zero,
                  std::chrono::milliseconds hang_limit, rendezvous::Store& store) {
  comm::Watchdog::Options watch_options{.rank = env.rank, .world_size = env.world_size, .host = env.host};
  watch_options.times = comm::HangTimes(hang_limit);
  comm::CommunicatorOptions options;
  options.rank = env.rank;
  options.size = env.world_size;
  if (env.world_size > 1) options.host = rendezvous::own_address_towards(env.master_addr, env.num_nodes);
  options.device = device.is_cuda() ? device.index() : -1;
  options.timeout = watch_options.times.backend_timeout;

  watch = std::make_unique<comm::Watchdog>(std::move(watch_options), store);
  const comm::Watchdog::BarrierWait barrier(*watch, "groups", "the set-up of the ranks' communicators", "");
  const auto make = [&](int first_rank) {
    auto group = comm::make_communicator(options, store);
    watch->add({group.get(), options.name, ranks_from(first_rank, options.size)});
    return group;
  };
  world = make(0);
  if (zero.stage == 3 && device.is_cuda()) {
    options.name = "gather";
    gather = make(0);
  }
  if (const auto own = runtime::hpz_group(env.rank, env.world_size, zero.hpz_partition_size)) {
    options.name = fmt::format("hpz.{}", own->group);
    options.rank = own->index;
    options.size = own->size;
    secondary = make(env.rank - own->index);
  }
}

}  // namespace dslaunch::worker
