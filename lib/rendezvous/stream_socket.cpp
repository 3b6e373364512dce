#include "rendezvous/stream_socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_addresses.hpp"
#include "ports/connect_first.hpp"
#include "ports/held_port.hpp"

namespace dslaunch::rendezvous {

namespace {

// Time limit of one attempt: otherwise a silent address would hide another one where a process starts to listen.
constexpr std::chrono::milliseconds kOneConnection{5000};

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

IoOutcome wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    int ready = ::poll(&entry, 1, deadline.poll_timeout());
    if (ready > 0) return IoOutcome::kDone;
    if (ready < 0 && errno != EINTR) return IoOutcome::kClosed;
    if (deadline.passed()) return IoOutcome::kTimedOut;
  }
}

// A connect to a port of our own host without a listener may connect to itself when the kernel picks the same source
// port.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own_size == peer_size &&
         std::memcmp(&own, &peer, own_size) == 0;
}

// This host has no route to the address: another address of the name is the right one.
bool leads_nowhere(int error) {
  return error == ENETUNREACH || error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

// When one address is silent, another address's refusal is inconclusive: the silent address may be the right one.
ConnectFailure why_none(const std::vector<ports::FirstConnection::Failure>& failures) {
  ConnectFailure none;
  bool open_question = false;
  none.no_way = !failures.empty();
  for (const auto& [address, error] : failures) {
    none.message = error == ETIMEDOUT ? "no answer" : describe_errno(error);
    none.refused = none.refused || error == ECONNREFUSED;
    none.no_way = none.no_way && error == ENETUNREACH;
    open_question = open_question || (error != ECONNREFUSED && !leads_nowhere(error));
  }
  none.refused = none.refused && !open_question;
  return none;
}

void poll_until(std::vector<pollfd>& polls, Deadline deadline) {
  if (::poll(polls.data(), polls.size(), deadline.poll_timeout()) >= 0) return;
  for (auto& poll : polls) poll.revents = 0;
}

}  // namespace

void prepare_stream_socket(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 20000);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

int address_family(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0)
    throw SystemError("getsockname", "listener");
  return storage.ss_family;
}

UniqueFd listen_on(uint16_t port, bool loopback_only) {
  auto held = ports::hold_port(loopback_only ? "127.0.0.1" : "", port);
  if (const auto* busy = std::get_if<ports::Busy>(&held)) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("cannot listen for the store of this job: {}. `dslaunch doctor --port {}` shows more; "
                                "set MASTER_PORT to another port",
                                ports::describe(*busy), port));
  }
  return std::move(std::get<ports::HeldPort>(held).listener);
}

bool is_loopback_address(const std::string& address) {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

Deadline sooner(Deadline deadline, std::chrono::milliseconds duration) {
  return Deadline::after(std::min(deadline.left(), duration));
}

Result<UniqueFd, ConnectFailure> connect_once(const std::string& host, uint16_t port, Deadline deadline) {
  const auto found = look_up_host(host.c_str(), port);
  if (!found.ok()) {
    return Failure{ConnectFailure{fmt::format("cannot resolve '{}': {}", host, found.error())}};
  }
  // The limit starts after the lookup, which may take as long itself when a name server is down.
  auto connection = ports::connect_first(found->get(), sooner(deadline, kOneConnection), poll_until);
  if (!connection.fd.valid()) return Failure{why_none(connection.failures)};
  if (is_connected_to_itself(connection.fd.get())) {
    return Failure{ConnectFailure{.message = describe_errno(ECONNREFUSED), .refused = true}};
  }
  prepare_stream_socket(connection.fd.get());
  return std::move(connection.fd);
}

IoOutcome send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (auto outcome = wait_for(fd, POLLOUT, deadline); outcome != IoOutcome::kDone) return outcome;
    } else if (errno != EINTR) {
      return IoOutcome::kClosed;
    }
  }
  return IoOutcome::kDone;
}

IoOutcome receive_exactly(int fd, std::string& bytes, size_t count, Deadline deadline) {
  bytes.resize(count);
  size_t done = 0;
  while (done < count) {
    ssize_t got = ::recv(fd, bytes.data() + done, count - done, 0);
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got < 0 && errno == EAGAIN) {
      if (auto outcome = wait_for(fd, POLLIN, deadline); outcome != IoOutcome::kDone) return outcome;
    } else if (got == 0 || errno != EINTR) {
      return IoOutcome::kClosed;
    }
  }
  return IoOutcome::kDone;
}

}  // namespace dslaunch::rendezvous
