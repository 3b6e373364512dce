// The kernel's TCP sockets on one local port, from netlink or, where netlink is not available, from /proc/net.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::ports {

struct Socket {
  enum class State { kListening, kConnected, kClosing };  // kClosing: no process owns it any more, as in TIME_WAIT
  std::string address;                                    // local, numeric
  State state;
  uint64_t inode;  // 0 when closing
  uid_t uid;
  bool operator==(const Socket&) const = default;
};

// nullopt when the kernel or a sandbox refuses the query.
std::optional<std::vector<Socket>> sockets_from_netlink(uint16_t port);
// Empty where /proc is not mounted.
std::vector<Socket> sockets_from_proc(uint16_t port);

std::vector<Socket> sockets_on(uint16_t port);

}  // namespace dslaunch::ports
