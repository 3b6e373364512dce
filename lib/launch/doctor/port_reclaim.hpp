// Takes a port requested by number, reclaiming it if only a dead job of dslaunch holds it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "ports/held_port.hpp"

namespace dslaunch::launch {

// Holds the port as ports::hold_port does. When the port is taken, and every holder belongs to a dslaunch job whose
// supervisor is gone and is stale by doctor's rule, ends exactly those holders (SIGTERM, after two seconds SIGKILL),
// reports them to `say`, and takes the port. With any other holder among them no process is touched and the outcome is
// Busy. Throws as hold_port.
std::variant<ports::HeldPort, ports::Busy> hold_or_reclaim_port(const std::string& address, uint16_t port,
                                                                const std::function<void(const std::string&)>& say);

}  // namespace dslaunch::launch
