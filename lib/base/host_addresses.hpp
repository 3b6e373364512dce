// What the name service says about a host. Any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

struct addrinfo;
struct sockaddr;

namespace dslaunch {

struct FreeAddresses {
  void operator()(addrinfo* list) const;
};

struct HostAddresses {
  std::unique_ptr<addrinfo, FreeAddresses> list;  // null: there is none
  std::string trouble;                            // why, in the words of the name service
};

// getaddrinfo(3) for streams, which knows no deadline. `flags` are its AI_ flags; with AI_PASSIVE no name stands for
// all addresses of this machine.
HostAddresses look_up_host(const char* name, uint16_t port, int flags = 0);

// As a number, without the port; empty when it has none.
std::string numeric_address(const sockaddr* address, size_t size);

}  // namespace dslaunch
