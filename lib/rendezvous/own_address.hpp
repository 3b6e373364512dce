// The address of this host that other hosts can reach.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::rendezvous {

// The source address that the kernel takes towards `peer` (MASTER_ADDR). When that is a loopback address but the job
// has several hosts (the usual case on the host of rank 0), the first address of an interface that is up. Throws
// UserError(69) when there is none.
std::string own_address_towards(const std::string& peer, int num_nodes);

// Those of all interfaces that are up, as numbers: connections from here may come from any. Without loopback, and
// without link-local ones, which mean nothing elsewhere.
std::vector<std::string> interface_addresses();

// Without a peer to ask for: the first IPv4 address of an interface that is up, on a host without any the first of
// IPv6; empty when there is none.
std::string first_interface_address();

}  // namespace dslaunch::rendezvous
