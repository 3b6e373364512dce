// The address of this host that other hosts can reach.
#pragma once
#include <string>

namespace dslaunch::rendezvous {

// The source address that the kernel takes towards `peer` (MASTER_ADDR). When that is a loopback address but the job
// has several hosts (the usual case on the host of rank 0), the first address of an interface that is up. Throws
// UserError(69) when there is none.
std::string own_address_towards(const std::string& peer, int num_nodes);

// Without a peer to ask for: the first IPv4 address of an interface that is up, on a host without any the first of
// IPv6; empty when there is none.
std::string first_interface_address();

}  // namespace dslaunch::rendezvous
