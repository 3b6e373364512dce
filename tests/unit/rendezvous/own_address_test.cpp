#include "rendezvous/own_address.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using dslaunch::rendezvous::own_address_towards;

TEST_CASE("ranks of one host talk over the loopback, whatever the host is called", "[rendezvous][own_address]") {
  CHECK(own_address_towards("some-name-that-does-not-resolve.invalid", 1) == "127.0.0.1");
}

TEST_CASE("with several hosts the address is reachable from other hosts, if there is one",
          "[rendezvous][own_address]") {
  std::string interface = dslaunch::rendezvous::first_interface_address();
  CHECK(own_address_towards("127.0.0.1", 2) == (interface.empty() ? "127.0.0.1" : interface));
}

TEST_CASE("an unknown peer does not prevent a host from finding its address", "[rendezvous][own_address]") {
  try {
    CHECK(own_address_towards("some-name-that-does-not-resolve.invalid", 2).rfind("127.", 0) != 0);
  } catch (const dslaunch::UserError& error) {
    CHECK(error.code() == dslaunch::ExitCode::kUnavailable);  // a machine without any network
  }
}
