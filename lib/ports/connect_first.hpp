// A connection to whichever address of a name answers first. Of several some may lead nowhere (an IPv6 address on a
// network without IPv6, an interface that is down): the next is tried while those before it are still silent.
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
    int error_number;  // ETIMEDOUT also of one that was silent until the deadline
  };
  UniqueFd fd;                    // non-blocking; invalid when nobody answered
  std::vector<Failure> failures;  // until then, in the order of the failures
};

// As poll(2), until one is ready or the deadline passes; may throw.
using PollUntil = std::function<void(std::vector<pollfd>&, Deadline)>;

FirstConnection connect_first(const addrinfo* addresses, Deadline deadline, const PollUntil& wait);

}  // namespace dslaunch::ports
