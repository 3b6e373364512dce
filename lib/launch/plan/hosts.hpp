// Derives the hosts of a job, the transports to them and their devices from options, hostfile and environment.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hostfile/allocation.hpp"
#include "hostfile/choose_source.hpp"
#include "launch/channel/message.hpp"
#include "launch/plan/devices.hpp"
#include "launch/plan/launch_options.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

// The position of this process among the nodes when every node runs its own, externally started dslaunch.
struct NodeMembership {
  int node_rank = 0, num_nodes = 1;
  std::string master_addr;
  uint16_t master_port = 0;
  // Shared by all nodes (DSLAUNCH_TOKEN), which prove it to each other. Empty: the first peer at the port is a node.
  std::vector<uint8_t> token;
};

// What options, environment and hostfile say of the hosts, before this machine's devices are looked at.
struct HostList {
  hostfile::Source source;
  std::optional<hostfile::Allocation> listed;  // by the hostfile or Slurm; empty: nothing lists the hosts
  std::optional<NodeMembership> membership;    // empty: the usual launch from one host
};

struct ResolvedHosts {
  hostfile::Allocation allocation;
  std::vector<Reach> reach;          // by host
  std::string device;                // cpu | cuda; "auto": decided once the other machines have reported their devices
  std::vector<std::string> visible;  // this machine's devices by slot
  uint16_t master_port = 0;          // to which externally started nodes connect; 0: there are no such nodes
};

// Selects the source of the host list among the possible ones (docs/clusters.md). Reads the environment and looks for
// the default hostfile. Throws UserError (64, 78).
hostfile::Source find_source(const LaunchOptions& options);

// Reads the hostfile, if the source is one: the only time in a launch, since it may be a pipe. Throws UserError: 64,
// 65, 66, 69 as hostfile::resolve does, 78 when DSLAUNCH_TOKEN is not 64 hexadecimal digits.
HostList list_hosts(const LaunchOptions& options, hostfile::Source source);

// Throws UserError: 69 for fewer GPUs or slots than requested.
ResolvedHosts resolve_hosts(const LaunchOptions& options, const HostList& list, DeviceUser user);

// The slots and devices that this node reports to node rank 0.
AgentHello offer_of_this_node(const LaunchOptions& options, const HostList& list);

// On node rank 0, once all other nodes have connected: sets their host names and, where nothing else defines them,
// their slots. `offers` is in the order of node ranks, from 1.
void apply_offers(ResolvedHosts& hosts, const std::vector<AgentHello>& offers);

// Leaves out the last slots, and hosts that lose all of theirs, so that the number of ranks is a multiple of
// `ranks_per_model`. Returns how many slots stay idle; 0 and no change if there are fewer slots than that, or if the
// nodes are externally started: those are connected already.
int leave_out_surplus(ResolvedHosts& hosts, int ranks_per_model);

}  // namespace dslaunch::launch
