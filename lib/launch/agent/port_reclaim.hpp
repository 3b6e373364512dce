// A port that is asked for by number, taken back where only a dead job of ours is in the way.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "ports/held_port.hpp"

namespace dslaunch::launch {

// Holds the port as ports::hold_port does. When it is taken, and every holder belongs to a job of ours whose supervisor
// is gone and is stale by doctor's rule, exactly those are ended (SIGTERM, after two seconds SIGKILL), `say` is told
// which, and the port is taken. Anyone else among the holders: nobody is touched and the outcome is Busy. Throws as
// hold_port.
std::variant<ports::HeldPort, ports::Busy> hold_or_reclaim_port(const std::string& address, uint16_t port,
                                                                const std::function<void(const std::string&)>& say);

}  // namespace dslaunch::launch
