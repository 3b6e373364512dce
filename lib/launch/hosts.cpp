#include "launch/hosts.hpp"

#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "hostfile/resolve.hpp"
#include "hostfile/this_machine.hpp"

namespace dslaunch::launch {
namespace {

void refuse_remote_hosts(const hostfile::Allocation& allocation) {
  std::vector<std::string> remote;
  for (const auto& host : allocation.hosts) {
    if (!hostfile::is_this_machine(host.name)) remote.push_back(host.name);
  }
  if (remote.empty()) return;
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("remote hosts are not supported yet: {} ({}); use --include to keep to this machine",
                              fmt::join(remote, ", "), allocation.source));
}

// A hostfile may promise more slots than this machine has devices.
void refuse_missing_devices(const hostfile::Allocation& allocation, const DeviceSituation& situation) {
  for (const auto& host : allocation.hosts) {
    if (host.slots.empty() || host.slots.back() < static_cast<int>(situation.visible.size())) continue;
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

ResolvedHosts resolve_hosts(const LaunchOptions& options, bool need_cuda_build) {
  DeviceSituation situation = options.device == DeviceChoice::kCpu ? DeviceSituation{} : look_for_devices();
  // The number that was asked for belongs into the message, also where there is no device at all.
  if (options.device == DeviceChoice::kCuda && !options.hostfile) check_num_gpus(options, situation);
  ResolvedHosts resolved;
  resolved.device = choose_device(options.device, situation, need_cuda_build);
  if (resolved.device == "cuda" && !options.hostfile) check_num_gpus(options, situation);
  resolved.allocation = resolve_allocation(options, situation, resolved.device);
  refuse_remote_hosts(resolved.allocation);
  if (resolved.device == "cuda") refuse_missing_devices(resolved.allocation, situation);
  resolved.visible = std::move(situation.visible);
  return resolved;
}

}  // namespace dslaunch::launch
