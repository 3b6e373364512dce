#include "ports/held_port.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_addresses.hpp"
#include "ports/socket_table.hpp"

namespace dslaunch::ports {
namespace {

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

using Attempt = std::variant<UniqueFd, int>;  // a listening socket, or errno

Attempt try_to_listen(const addrinfo& target) {
  UniqueFd fd(socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  // On Linux this option ignores TIME_WAIT sockets, never another listener.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (target.ai_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Listen immediately: two sockets with SO_REUSEADDR may both be bound as long as neither listens.
  if (bind(fd.get(), target.ai_addr, target.ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0) return errno;
  return fd;
}

// Tries the addresses in order until one can be listened on or is taken.
Attempt try_each(const addrinfo* list, int family) {
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = list; at; at = at->ai_next) {
    if (family != AF_UNSPEC && at->ai_family != family) continue;
    Attempt attempt = try_to_listen(*at);
    if (std::holds_alternative<UniqueFd>(attempt)) return attempt;
    error = std::get<int>(attempt);
    if (error == EADDRINUSE || error == EACCES) return error;
  }
  return error;
}

Attempt listen_on(const std::string& address, uint16_t port) {
  const auto found = look_up_host(address.empty() ? nullptr : address.c_str(), port, AI_PASSIVE);
  if (!found.ok()) {
    throw UserError(ExitCode::kUnavailable, fmt::format("cannot listen on '{}': {}", address, found.error()));
  }
  if (!address.empty()) return try_each(found->get(), AF_UNSPEC);
  // "All addresses" is one IPv6 socket that also accepts IPv4, where the machine has IPv6 at all.
  Attempt both = try_each(found->get(), AF_INET6);
  if (const int* error = std::get_if<int>(&both); error && *error != EADDRINUSE && *error != EACCES) {
    return try_each(found->get(), AF_INET);
  }
  return both;
}

bool is_taken(const Attempt& attempt) {
  const int* error = std::get_if<int>(&attempt);
  return error && *error == EADDRINUSE;
}

Busy look_for_holders(uint16_t port) {
  Busy busy{port, find_holders(port)};
  if (!busy.holders.empty()) return busy;
  const auto sockets = sockets_on(port);
  busy.closing = std::any_of(sockets.begin(), sockets.end(),
                             [](const Socket& socket) { return socket.state == Socket::State::kClosing; });
  return busy;
}

[[noreturn]] void throw_cannot_listen(const std::string& address, uint16_t port, int error) {
  std::string what =
      fmt::format("cannot listen on {}:{}: {}", address.empty() ? "*" : address, port, describe_errno(error));
  if (error == EACCES) {
    throw UserError(ExitCode::kPermission, what + "; ports below 1024 need privileges, choose another port");
  }
  if (error == EADDRNOTAVAIL) throw UserError(ExitCode::kUnavailable, what + "; it is not an address of this machine");
  throw UserError(ExitCode::kUnavailable, what);
}

}  // namespace

std::string describe(const Busy& busy) {
  if (!busy.closing) return describe_busy(busy.port, busy.holders);
  return fmt::format("port {} is still closing connections of a program that has ended; it is free within a minute",
                     busy.port);
}

uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw SystemError("getsockname", "listener");
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port)
                                       : ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::variant<HeldPort, Busy> hold_port(const std::string& address, uint16_t port) {
  Attempt attempt = listen_on(address, port);
  if (is_taken(attempt)) {
    if (Busy busy = look_for_holders(port); !busy.holders.empty()) return busy;
    // No holder is visible: it may have exited between the attempt and the lookup.
    attempt = listen_on(address, port);
    if (is_taken(attempt)) return look_for_holders(port);
  }
  if (const int* error = std::get_if<int>(&attempt)) throw_cannot_listen(address, port, *error);
  UniqueFd listener = std::move(std::get<UniqueFd>(attempt));
  uint16_t chosen = bound_port(listener.get());
  return HeldPort{std::move(listener), chosen};
}

}  // namespace dslaunch::ports
