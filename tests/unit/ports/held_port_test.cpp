#include "ports/held_port.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "ports/socket_table.hpp"
#include "unit/ports/holder_process.hpp"

using namespace dslaunch;
using namespace dslaunch::ports;
using Catch::Contains;

namespace {

// Leaves a connection of `port` in TIME_WAIT: the side that closes first keeps it.
void leave_time_wait(int listener, uint16_t port) {
  UniqueFd client = connect_to("127.0.0.1", port);
  REQUIRE(client.valid());
  UniqueFd server(accept(listener, nullptr, nullptr));
  REQUIRE(server.valid());
  server.reset();
  char byte;
  REQUIRE(read(client.get(), &byte, 1) == 0);
}

bool in_time_wait(uint16_t port) {
  for (const auto& socket : sockets_on(port)) {
    if (socket.state == Socket::State::kClosing) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the kernel chooses a port and it is held at once", "[ports][held_port]") {
  auto outcome = hold_port("127.0.0.1", 0);
  auto& held = std::get<HeldPort>(outcome);
  CHECK(held.port != 0);
  CHECK(connect_to("127.0.0.1", held.port).valid());
  auto second = hold_port("127.0.0.1", held.port);
  REQUIRE(std::holds_alternative<Busy>(second));
  CHECK(std::get<Busy>(second).holders.at(0).pid == getpid());
}

TEST_CASE("all addresses means IPv4 too", "[ports][held_port]") {
  auto outcome = hold_port("", 0);
  CHECK(connect_to("127.0.0.1", std::get<HeldPort>(outcome).port).valid());
}

TEST_CASE("a port that another process holds names that process", "[ports][held_port]") {
  HolderProcess other([] {
    uint16_t port = 0;
    listen_on("127.0.0.1", &port).release();
    return port;
  });
  for (const char* address : {"127.0.0.1", ""}) {
    auto outcome = hold_port(address, other.port());
    REQUIRE(std::holds_alternative<Busy>(outcome));
    const auto& busy = std::get<Busy>(outcome);
    CHECK(busy.port == other.port());
    REQUIRE(busy.holders.size() == 1);
    CHECK(busy.holders[0].pid == other.pid());
  }
  other.end();
  CHECK(std::holds_alternative<HeldPort>(hold_port("127.0.0.1", other.port())));
}

TEST_CASE("a holder on all IPv6 addresses keeps the port from 127.0.0.1", "[ports][held_port]") {
  uint16_t port = 0;
  UniqueFd listener = listen_on("::", &port);
  if (!listener.valid()) return;  // no IPv6 on this machine
  auto outcome = hold_port("127.0.0.1", port);
  REQUIRE(std::holds_alternative<Busy>(outcome));
  CHECK(std::get<Busy>(outcome).holders.at(0).address == "::");
}

TEST_CASE("connections in TIME_WAIT do not keep a port", "[ports][held_port]") {
  auto first = hold_port("127.0.0.1", 0);
  uint16_t port = std::get<HeldPort>(first).port;
  leave_time_wait(std::get<HeldPort>(first).listener.get(), port);
  std::get<HeldPort>(first).listener.reset();
  REQUIRE(in_time_wait(port));
  CHECK(find_holders(port).empty());
  CHECK(std::holds_alternative<HeldPort>(hold_port("127.0.0.1", port)));
}

TEST_CASE("distinguishes TIME_WAIT without SO_REUSEADDR from a holder", "[ports][held_port]") {
  uint16_t port = 0;
  UniqueFd listener = listen_on("127.0.0.1", &port);  // does not set it
  leave_time_wait(listener.get(), port);
  listener.reset();
  auto outcome = hold_port("127.0.0.1", port);
  REQUIRE(std::holds_alternative<Busy>(outcome));
  CHECK(std::get<Busy>(outcome).closing);
  CHECK(std::get<Busy>(outcome).holders.empty());
  CHECK_THAT(describe(std::get<Busy>(outcome)), Contains("still closing connections of a program that has ended"));
}

TEST_CASE("an address of another machine and an unknown name are errors that say so", "[ports][held_port]") {
  auto message = [](const char* address) -> std::string {
    try {
      hold_port(address, 0);
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kUnavailable);
      return error.what();
    }
    return "held";
  };
  CHECK_THAT(message("192.0.2.1"), Contains("192.0.2.1") && Contains("not an address of this machine"));
  CHECK_THAT(message("no-such-host.invalid"), Contains("cannot listen on 'no-such-host.invalid'"));
}

TEST_CASE("the listener is not inherited by started programs", "[ports][held_port]") {
  auto outcome = hold_port("127.0.0.1", 0);
  CHECK((fcntl(std::get<HeldPort>(outcome).listener.get(), F_GETFD) & FD_CLOEXEC) != 0);
}
