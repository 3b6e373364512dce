// Connects to the first address of a name that answers. Some addresses may be unreachable (an IPv6 address on a network
// without IPv6, an interface that is down): the next address is tried while the earlier ones are still silent.
#pragma once
#include <netdb.h>
#include <poll.h>

#include <functional>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::ports {

struct FirstConnection {
  struct Failure {
    const addrinfo* address;
    int error_number;  // ETIMEDOUT also for an address that was silent until the deadline
  };
  UniqueFd fd;                    // non-blocking; invalid when no address answered
  std::vector<Failure> failures;  // up to the connection, in the order in which they failed
};

// Like poll(2), until a descriptor is ready or the deadline passes; may throw.
using PollUntil = std::function<void(std::vector<pollfd>&, Deadline)>;

FirstConnection connect_first(const addrinfo* addresses, Deadline deadline, const PollUntil& wait);

}  // namespace dslaunch::ports
