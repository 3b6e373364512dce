#include "ports/peer_owner.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "unit/ports/holder_process.hpp"

using namespace dslaunch;
using namespace dslaunch::ports;
using Location = PeerOwner::Location;

namespace {

struct Connection {
  UniqueFd client, server;
};

// `family`: of the client, which reaches an IPv6 listener by ::ffff:127.0.0.1 as well.
Connection connect_pair(const char* listen_address, int family) {
  uint16_t port = 0;
  UniqueFd listener = listen_on(listen_address, &port);
  if (!listener.valid()) return {};
  UniqueFd client(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  ::inet_pton(AF_INET6, std::string(listen_address) == "::1" ? "::1" : "::ffff:127.0.0.1", &six.sin6_addr);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  ::inet_pton(AF_INET, "127.0.0.1", &four.sin_addr);
  int connected = family == AF_INET ? ::connect(client.get(), reinterpret_cast<sockaddr*>(&four), sizeof four)
                                    : ::connect(client.get(), reinterpret_cast<sockaddr*>(&six), sizeof six);
  REQUIRE(connected == 0);
  return {std::move(client), UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

void check_owner(const Connection& connection, uid_t uid) {
  auto proc = peer_owner_from_proc(connection.server.get());
  REQUIRE(proc);
  CHECK(proc->location == Location::kHere);
  CHECK(proc->uid == uid);
  if (auto netlink = peer_owner_from_netlink(connection.server.get())) {
    CHECK(netlink->location == Location::kHere);
    CHECK(netlink->uid == uid);
  }
  CHECK(owner_of_peer(connection.server.get()).uid == uid);
}

}  // namespace

TEST_CASE("both sources find the owner of a connection's peer", "[ports][peer_owner]") {
  struct Case {
    const char* listener;
    int client;
  };
  for (auto [listener, client] : {Case{"127.0.0.1", AF_INET}, {"::", AF_INET}, {"::", AF_INET6}, {"::1", AF_INET6}}) {
    CAPTURE(listener, client);
    auto connection = connect_pair(listener, client);
    if (!connection.server.valid()) continue;  // no IPv6 on this machine
    check_owner(connection, ::geteuid());
  }
}

TEST_CASE("distinguishes another user's socket from one's own", "[ports][peer_owner]") {
  if (::geteuid() != 0) return;  // only root can make one
  ::setfsuid(54321);
  auto connection = connect_pair("127.0.0.1", AF_INET);
  ::setfsuid(0);
  check_owner(connection, 54321);
}

TEST_CASE("a closed peer is not attributed to root", "[ports][peer_owner]") {
  auto connection = connect_pair("127.0.0.1", AF_INET);
  SECTION("with its last packets still to come") {
    connection.client.reset();
  }
  SECTION("with a reset") {
    linger reset{1, 0};
    ::setsockopt(connection.client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    connection.client.reset();
  }
  CHECK(owner_of_peer(connection.server.get()).location == Location::kGone);
}
