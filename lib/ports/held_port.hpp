// Take a TCP port and keep it. Ports are held, not found: bind first, keep the socket, publish the number.
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
  uint16_t port;      // the number that was asked for, or the kernel's choice
};

struct Busy {
  uint16_t port;
  std::vector<Holder> holders;  // may be empty: the holder is out of sight, or gone by now
  bool closing = false;         // no holder, but connections of a program that ended are still closing
};

// One line that says who is in the way.
std::string describe(const Busy& busy);

// Binds `address` (a name or number; empty: all addresses, IPv6 and IPv4) and listens; port 0 lets the kernel choose.
// Connections of a program that ended and are still closing (TIME_WAIT) do not stand in the way, unless that program
// left out SO_REUSEADDR: then the kernel refuses, and the outcome says so.
// Throws UserError: 69 when the address is not one of this machine, 77 for a port below 1024 that needs privileges.
// Any thread.
std::variant<HeldPort, Busy> hold_port(const std::string& address, uint16_t port);

// The number that a socket is bound to. Throws SystemError.
uint16_t bound_port(int fd);

}  // namespace dslaunch::ports
