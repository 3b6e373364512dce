// Takes a TCP port and keeps it: a free port is never searched for and released. Bind first, keep the socket, then
// publish the number.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/unique_fd.hpp"
#include "ports/holder.hpp"

namespace dslaunch::ports {

struct HeldPort {
  UniqueFd listener;  // bound and listening, blocking, close-on-exec
  uint16_t port;      // the requested number, or the kernel's choice
};

struct Busy {
  uint16_t port;
  std::vector<Holder> holders;  // may be empty: the holder is not visible, or already gone
  bool closing = false;         // no holder, but connections of a program that ended are still closing
};

// One line that says who holds the port.
std::string describe(const Busy& busy);

// Binds `address` (a name or number; empty: all addresses, IPv6 and IPv4) and listens; port 0 lets the kernel choose.
// Closing connections of an ended program (TIME_WAIT) do not block the port, unless that program did not set
// SO_REUSEADDR: then the kernel refuses the bind, and the result says so.
// Throws UserError: 69 when the address does not belong to this machine, 77 for a port below 1024 that needs
// privileges.
// Any thread.
std::variant<HeldPort, Busy> hold_port(const std::string& address, uint16_t port);

// The port number that a socket is bound to. Throws SystemError.
uint16_t bound_port(int fd);

}  // namespace dslaunch::ports
