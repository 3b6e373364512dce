// From options, hostfile and environment to the hosts of a job, the ways to them and their devices.
#pragma once
#include "hostfile/allocation.hpp"
#include "hostfile/choose_source.hpp"
#include "launch/launch_options.hpp"
#include "launch/plan/devices.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/node_join.hpp"

namespace dslaunch::launch {

// Which of the places that may name hosts counts (docs/clusters.md). Looks at the environment and for the default
// hostfile. Throws UserError (64, 78).
hostfile::Source find_source(const LaunchOptions& options);

struct ResolvedHosts {
  hostfile::Allocation allocation;
  std::vector<Reach> reach;          // of each host
  std::string device;                // cpu | cuda; "auto": other machines have to say what they have
  std::vector<std::string> visible;  // devices of this machine by slot
  uint16_t master_port = 0;          // to which nodes come by themselves; 0: none do
};

// Throws UserError: 69 for fewer GPUs or slots than asked for; 64, 65, 66 as hostfile::resolve.
ResolvedHosts resolve_hosts(const LaunchOptions& options, const hostfile::Source& source, DeviceUser user);

// One dslaunch on every node, started by somebody else: where this one stands. Empty: the usual launch from one host.
// Throws UserError (64, 78).
std::optional<NodePlace> node_place(const LaunchOptions& options, const hostfile::Source& source);

// What this node tells node rank 0 that it has.
AgentHello offer_of_this_node(const LaunchOptions& options, const hostfile::Source& source);

// Node rank 0, once the others have come: their names and, where nothing else says so, their slots. `offers`: by node
// rank from 1.
void apply_offers(ResolvedHosts& hosts, const std::vector<AgentHello>& offers);

}  // namespace dslaunch::launch
