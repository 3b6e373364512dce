#include "comm/own_address.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using dslaunch::comm::own_address_towards;

TEST_CASE("ranks of one host talk over the loopback, whatever the host is called", "[comm][own_address]") {
  CHECK(own_address_towards("some-name-that-does-not-resolve.invalid", 1) == "127.0.0.1");
}

TEST_CASE("with several hosts the address is never a loopback one", "[comm][own_address]") {
  try {
    CHECK(own_address_towards("127.0.0.1", 2).rfind("127.", 0) != 0);
  } catch (const dslaunch::UserError& error) {
    // A machine without any network has none to offer, and says so.
    CHECK(error.code() == dslaunch::ExitCode::kUnavailable);
    CHECK_THAT(error.what(), Catch::Contains("127.0.0.1"));
  }
}
