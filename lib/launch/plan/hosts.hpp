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

// Selects the source of the host list among the possible ones (docs/clusters.md). Reads the environment and looks for
// the default hostfile. Throws UserError (64, 78).
hostfile::Source find_source(const LaunchOptions& options);

// The position of this process among the nodes when every node runs its own, externally started dslaunch.
struct NodePlace {
  int node_rank = 0, num_nodes = 1;
  std::string master_addr;
  uint16_t master_port = 0;
  // Shared by all nodes (DSLAUNCH_TOKEN), which prove it to each other. Empty: the first peer at the port is a node.
  std::vector<uint8_t> token;
};

struct ResolvedHosts {
  hostfile::Allocation allocation;
  std::vector<Reach> reach;          // by host
  std::string device;                // cpu | cuda; "auto": decided once the other machines have reported their devices
  std::vector<std::string> visible;  // this machine's devices by slot
  uint16_t master_port = 0;          // to which externally started nodes connect; 0: there are no such nodes
};

// Throws UserError: 69 for fewer GPUs or slots than requested; 64, 65, 66 as hostfile::resolve does.
ResolvedHosts resolve_hosts(const LaunchOptions& options, const hostfile::Source& source, DeviceUser user);

// Empty: the usual launch from one host. Throws UserError (64, 78), also when DSLAUNCH_TOKEN is not 64 hexadecimal
// digits.
std::optional<NodePlace> node_place(const LaunchOptions& options, const hostfile::Source& source);

// The slots and devices that this node reports to node rank 0.
AgentHello offer_of_this_node(const LaunchOptions& options, const hostfile::Source& source);

// On node rank 0, once all other nodes have connected: sets their host names and, where nothing else defines them,
// their slots. `offers` is in the order of node ranks, from 1.
void apply_offers(ResolvedHosts& hosts, const std::vector<AgentHello>& offers);

}  // namespace dslaunch::launch
