// A TCP connection to a host's sshd. Made here instead of by libssh, which resolves names without a deadline and tries
// one address only.
#pragma once
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "spawn/ssh/libssh/interrupt.hpp"

namespace dslaunch::spawn {

// The socket is non-blocking, with TCP_NODELAY. Throws ConnectError, Interrupted.
UniqueFd dial_tcp(const std::string& host, uint16_t port, Deadline deadline, const Interrupt& interrupt);

}  // namespace dslaunch::spawn
