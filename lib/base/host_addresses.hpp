// Name service lookups of a host. Any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"

struct addrinfo;
struct sockaddr;

namespace dslaunch {

struct FreeAddresses {
  void operator()(addrinfo* list) const;
};

using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;  // at least one address

// getaddrinfo(3) for stream sockets, which has no deadline. `flags` are its AI_ flags; with AI_PASSIVE a null name
// stands for all addresses of this machine. The error is worded as the name service words it.
Result<AddressList> look_up_host(const char* name, uint16_t port, int flags = 0);

// The numeric address, without the port; empty when it has no numeric form.
std::string numeric_address(const sockaddr* address, size_t size);

}  // namespace dslaunch
