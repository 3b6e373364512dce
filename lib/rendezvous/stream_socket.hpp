// Plain socket calls that client, server and the look into torchrun's store share. Blocking calls take a deadline; an
// outcome that the caller acts on is returned.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::rendezvous {

// No delay, not inherited by children, and an end within 20 s when the other host vanishes without a word.
void prepare_stream_socket(int fd);
int address_family(int fd);

// A listening socket on `port` (0: the kernel chooses), of this host only or of all its addresses.
// Throws UserError: 69 when the port is taken, with who holds it; 77 for one that needs privileges.
UniqueFd listen_on(uint16_t port, bool loopback_only);

// A name or number that means the machine itself, whichever it is.
bool is_loopback_address(const std::string& address);

// The deadline, or `duration` from now where that is sooner.
Deadline sooner(Deadline deadline, std::chrono::milliseconds duration);

// One attempt over all addresses of the name, some seconds at most behind the lookup. An invalid fd and a reason when
// nobody answers.
struct Connected {
  UniqueFd fd;
  std::string failure;
  bool refused = false;  // the host says that nobody listens there, at every address to which a way leads
  bool no_way = false;   // this host has no network to any of its addresses
};
Connected connect_once(const std::string& host, uint16_t port, Deadline deadline);

enum class IoOutcome { kDone, kClosed, kTimedOut };
// The fd is non-blocking. An error of the connection counts as closed.
IoOutcome send_all(int fd, std::string_view bytes, Deadline deadline);
IoOutcome receive_exactly(int fd, std::string& bytes, size_t count, Deadline deadline);

}  // namespace dslaunch::rendezvous
