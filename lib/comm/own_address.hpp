// The address of this host that the other ranks can reach, for backends that listen.
#pragma once
#include <string>

namespace dslaunch::comm {

// The source address that the kernel takes towards `peer` (MASTER_ADDR). When that is a loopback address but the job
// has several hosts (the usual case on the host of rank 0), the first address of an interface that is up. Throws
// UserError(69) when there is none.
std::string own_address_towards(const std::string& peer, int num_nodes);

}  // namespace dslaunch::comm
