// Finds the address of this host that other hosts can reach.
#pragma once
#include <string>
#include <vector>

namespace dslaunch::rendezvous {

// The source address that the kernel selects towards `peer` (MASTER_ADDR). When that is a loopback address but the job
// has several hosts (the usual case on the host of rank 0), the first address of an interface that is up. Throws
// UserError(69) when there is none.
std::string own_address_towards(const std::string& peer, int num_nodes);

// The numeric addresses of all interfaces that are up: connections from this host may come from any of them. Excludes
// loopback and link-local addresses, which mean nothing on other hosts.
std::vector<std::string> interface_addresses();

// For use without a peer: the first IPv4 address of an interface that is up; on a host without IPv4, the first IPv6
// address; empty when there is none.
std::string first_interface_address();

}  // namespace dslaunch::rendezvous
