#include "hostfile/this_machine.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <catch2/catch.hpp>

using dslaunch::hostfile::is_this_machine;

TEST_CASE("localhost, loopback addresses and our own name are this machine", "[hostfile][this_machine]") {
  CHECK(is_this_machine("localhost"));
  CHECK(is_this_machine("LocalHost."));
  CHECK(is_this_machine("127.0.0.1"));
  CHECK(is_this_machine("127.9.8.7"));
  CHECK(is_this_machine("::1"));
  CHECK(is_this_machine("::ffff:127.0.0.1"));
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof(name) - 1) == 0);
  CHECK(is_this_machine(name));
}

TEST_CASE("every address of our interfaces is this machine", "[hostfile][this_machine]") {
  ifaddrs* list = nullptr;
  REQUIRE(getifaddrs(&list) == 0);
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof(text));
    CHECK(is_this_machine(text));
  }
  freeifaddrs(list);
}

TEST_CASE("documentation addresses and names that cannot exist are other machines", "[hostfile][this_machine]") {
  CHECK_FALSE(is_this_machine("192.0.2.1"));
  CHECK_FALSE(is_this_machine("2001:db8::1"));
  CHECK_FALSE(is_this_machine("no-such-host.invalid"));
  CHECK_FALSE(is_this_machine(""));
}
