#include "launch/hosts.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "hostfile/resolve.hpp"
#include "hostfile/this_machine.hpp"

namespace dslaunch::launch {
namespace {

// A hostfile may promise more slots than this machine has devices.
void refuse_missing_devices(const ResolvedHosts& resolved, const DeviceSituation& situation) {
  const auto& allocation = resolved.allocation;
  for (size_t i = 0; i < allocation.hosts.size(); ++i) {
    const auto& host = allocation.hosts[i];
    if (resolved.reach[i] != Reach::kPipe || host.slots.empty() ||
        host.slots.back() < static_cast<int>(situation.visible.size())) {
      continue;
    }
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("slot {} of {} ({}) has no GPU: {} visible here of {} in the machine", host.slots.back(), host.name,
                    allocation.source, situation.visible.size(), situation.num_present));
  }
}

void check_num_gpus(const LaunchOptions& options, const DeviceSituation& situation) {
  if (!options.num_gpus || *options.num_gpus <= static_cast<int>(situation.visible.size())) return;
  std::string hidden;
  if (situation.num_present > situation.visible.size()) {
    hidden = fmt::format(" (of {} in the machine; CUDA_VISIBLE_DEVICES hides the others)", situation.num_present);
  }
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("--num_gpus {}: this host has {} GPU(s){}; ask for at most that many, or say --device cpu "
                  "for CPU ranks",
                  *options.num_gpus, situation.visible.size(), hidden));
}

}  // namespace

hostfile::Allocation resolve_allocation(const LaunchOptions& options, const DeviceSituation& situation,
                                        const std::string& device) {
  hostfile::Request request;
  request.hostfile = options.hostfile;
  request.include = options.include;
  request.exclude = options.exclude;
  request.num_nodes = options.num_nodes;
  request.num_gpus = options.num_gpus;
  if (device == "cuda") {
    request.local_slots.resize(situation.visible.size());
    std::iota(request.local_slots.begin(), request.local_slots.end(), 0);
  } else {
    request.any_local_slots = true;
  }
  return hostfile::resolve(request);
}

namespace {

// A login node says nothing of the devices of the machines that it starts jobs on.
std::string device_elsewhere(DeviceChoice choice) {
  if (choice == DeviceChoice::kAuto) return "auto";
  return choice == DeviceChoice::kCuda ? "cuda" : "cpu";
}

std::vector<Reach> reach_of(const hostfile::Allocation& allocation) {
  std::vector<Reach> reach;
  for (const auto& host : allocation.hosts) {
    reach.push_back(hostfile::is_this_machine(host.name) ? Reach::kPipe : Reach::kSsh);
  }
  return reach;
}

}  // namespace

namespace {

// The nodes of --no_ssh without a hostfile: all like this one, until they say otherwise.
hostfile::Allocation nodes_like_this(const LaunchOptions& options, const DeviceSituation& situation,
                                     const std::string& device) {
  LaunchOptions one_node = options;
  one_node.num_nodes.reset();
  auto allocation = resolve_allocation(one_node, situation, device);
  hostfile::Host host = allocation.hosts.at(0);
  allocation.source = "--no_ssh";
  for (int node = 0; node < *options.num_nodes; ++node) {
    host.name = fmt::format("node{}", node);
    if (static_cast<size_t>(node) < allocation.hosts.size()) {
      allocation.hosts[node] = host;
    } else {
      allocation.hosts.push_back(host);
    }
  }
  return allocation;
}

}  // namespace

// Node rank 0 of --no_ssh is this machine, whatever its name; the others come to it.
static ResolvedHosts resolve_nodes(const LaunchOptions& options, bool need_cuda_build) {
  ResolvedHosts resolved;
  DeviceSituation situation = options.device == DeviceChoice::kCpu ? DeviceSituation{} : look_for_devices();
  std::string here = choose_device(options.device, situation, need_cuda_build);
  resolved.allocation =
      options.hostfile ? resolve_allocation(options, situation, here) : nodes_like_this(options, situation, here);
  resolved.reach.assign(resolved.allocation.hosts.size(), Reach::kDialIn);
  resolved.reach.at(0) = Reach::kPipe;
  resolved.device = options.device == DeviceChoice::kAuto && resolved.reach.size() > 1 ? "auto" : here;
  resolved.visible = std::move(situation.visible);
  return resolved;
}

ResolvedHosts resolve_hosts(const LaunchOptions& options, bool need_cuda_build) {
  if (options.no_ssh) return resolve_nodes(options, need_cuda_build);
  ResolvedHosts resolved;
  DeviceSituation situation = options.device == DeviceChoice::kCpu ? DeviceSituation{} : look_for_devices();
  if (options.hostfile) {
    resolved.allocation = resolve_allocation(options, situation, "cpu");
    resolved.reach = reach_of(resolved.allocation);
  }
  auto count = [&](Reach reach) { return std::count(resolved.reach.begin(), resolved.reach.end(), reach); };
  if (options.hostfile && count(Reach::kPipe) == 0) {
    resolved.device = device_elsewhere(options.device);
    return resolved;
  }
  // The number that was asked for belongs into the message, also where there is no device at all.
  if (options.device == DeviceChoice::kCuda && !options.hostfile) check_num_gpus(options, situation);
  resolved.device = choose_device(options.device, situation, need_cuda_build);
  if (!options.hostfile) {
    if (resolved.device == "cuda") check_num_gpus(options, situation);
    resolved.allocation = resolve_allocation(options, situation, resolved.device);
    resolved.reach = reach_of(resolved.allocation);
  }
  if (resolved.device == "cuda") refuse_missing_devices(resolved, situation);
  if (count(Reach::kSsh) > 0 && options.device == DeviceChoice::kAuto) resolved.device = "auto";
  resolved.visible = std::move(situation.visible);
  return resolved;
}

std::optional<NodePlace> node_place(const LaunchOptions& options) {
  if (!options.no_ssh) return std::nullopt;
  NodePlace place;
  place.node_rank = *options.node_rank;
  place.num_nodes = options.num_nodes.value_or(1);
  place.master_addr = options.master_addr;
  place.master_port = options.master_port == 0 ? kUsualMasterPort : options.master_port;
  place.token = shared_token();
  if (options.hostfile) {
    auto hosts = resolve_allocation(options, {}, "cpu").hosts;
    place.num_nodes = static_cast<int>(hosts.size());
    if (place.master_addr.empty()) place.master_addr = hosts.at(0).name;
  }
  if (place.node_rank >= place.num_nodes) {
    throw UserError(ExitCode::kUsage, fmt::format("--node_rank {}: there are {} nodes, counted from 0", place.node_rank,
                                                  place.num_nodes));
  }
  return place;
}

AgentHello offer_of_this_node(const LaunchOptions& options) {
  AgentHello offer;
  DeviceSituation situation = options.device == DeviceChoice::kCpu ? DeviceSituation{} : look_for_devices();
  offer.devices = situation.visible;
  if (options.hostfile) return offer;
  LaunchOptions one_node = options;
  one_node.num_nodes.reset();
  std::string device = choose_device(options.device, situation, false);
  if (device == "cuda") check_num_gpus(options, situation);
  offer.num_slots = resolve_allocation(one_node, situation, device).world_size();
  return offer;
}

void apply_offers(ResolvedHosts& hosts, const std::vector<AgentHello>& offers) {
  for (size_t node = 1; node < hosts.allocation.hosts.size(); ++node) {
    const AgentHello& offer = offers.at(node - 1);
    if (offer.num_slots == 0) continue;  // the hostfile knows
    auto& host = hosts.allocation.hosts[node];
    host.name = offer.host_name;
    host.slots.resize(static_cast<size_t>(offer.num_slots));
    std::iota(host.slots.begin(), host.slots.end(), 0);
  }
}

}  // namespace dslaunch::launch
