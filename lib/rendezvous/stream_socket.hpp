// Plain socket calls shared by client, server and the lookup in torchrun's store. Blocking calls take a deadline; an
// outcome that the caller acts on is returned.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::rendezvous {

// TCP_NODELAY, not inherited by children, and closed within 20 s when the other host vanishes silently.
void prepare_stream_socket(int fd);
int address_family(int fd);

// A listening socket on `port` (0: the kernel chooses), on this host's loopback only or on all of its addresses. Throws
// UserError: 69 when the port is taken, naming the holder; 77 for a port that needs privileges.
UniqueFd listen_on(uint16_t port, bool loopback_only);

// A name or number that means the local machine, whichever machine that is.
bool is_loopback_address(const std::string& address);

// The deadline, or `duration` from now where that is earlier.
Deadline sooner(Deadline deadline, std::chrono::milliseconds duration);

struct ConnectFailure {
  std::string message;
  bool reached = false;  // a process accepted the connection, but the handshake did not end
  bool refused = false;  // the host reports that nothing listens there, at every reachable address
  bool no_way = false;   // this host has no route to any of the addresses
};
// Makes one attempt over all addresses of the name, which takes a few seconds at most after the lookup.
Result<UniqueFd, ConnectFailure> connect_once(const std::string& host, uint16_t port, Deadline deadline);

enum class IoOutcome { kDone, kClosed, kTimedOut };
// The fd is non-blocking. A connection error counts as closed.
IoOutcome send_all(int fd, std::string_view bytes, Deadline deadline);
IoOutcome receive_exactly(int fd, std::string& bytes, size_t count, Deadline deadline);

}  // namespace dslaunch::rendezvous
