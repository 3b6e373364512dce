#include "hostfile/this_machine.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <latch>

using dslaunch::Deadline;
using dslaunch::hostfile::is_this_machine;
using dslaunch::hostfile::which_are_this_machine;

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

TEST_CASE("many names are resolved concurrently", "[hostfile][this_machine]") {
  std::vector<std::string> hosts{"localhost", "192.0.2.1"};
  for (int i = 0; i < 64; ++i) hosts.push_back("node" + std::to_string(i) + ".invalid");
  std::latch all_asking(64);  // opens only when all 64 are in the resolver at once
  auto answers = which_are_this_machine(hosts, Deadline::never(), [&](const std::string& name) {
    all_asking.arrive_and_wait();
    return name == "node7.invalid";
  });
  for (size_t i = 0; i < hosts.size(); ++i) {
    INFO(hosts[i]);
    CHECK(answers[i] == (hosts[i] == "localhost" || hosts[i] == "node7.invalid"));
  }
}

TEST_CASE("names without an answer by the deadline are other machines", "[hostfile][this_machine]") {
  std::promise<void> let_go;
  std::shared_future<void> held = let_go.get_future().share();
  auto left = std::make_shared<std::latch>(2);
  auto answers =
      which_are_this_machine({"quick.invalid", "stuck1.invalid", "127.0.0.1", "stuck2.invalid"},
                             Deadline::after(std::chrono::seconds(1)), [held, left](const std::string& name) {
                               if (name == "quick.invalid") return true;
                               held.wait();
                               left->count_down();
                               return true;
                             });
  CHECK(answers == std::vector<bool>{true, false, true, false});
  let_go.set_value();
  left->wait();
}
