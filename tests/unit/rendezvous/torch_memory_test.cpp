// How much memory torch's clients may hold of the server: what is half received, waited for or not read yet, all of
// them together. Nothing of it takes a token.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "unit/rendezvous/torch_requests.hpp"
#include "unit/rendezvous/torch_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;
using namespace torch_bytes;

namespace {

constexpr size_t kMiB = 1u << 20;

size_t resident_bytes() {
  size_t total_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TorchClients limited_to(size_t max_held_bytes) {
  TorchClients clients;
  clients.max_held_bytes = max_held_bytes;
  return clients;
}

// The front of a set, `sent` bytes of a value of `announced`.
std::string part_of_set(std::string_view key, size_t announced, size_t sent) {
  return type(1) + text(key) + number(announced) + std::string(sent, 'v');
}

}  // namespace

TEST_CASE("half-received values: the client that holds most is dropped beyond 256 MiB in total, the others stay",
          "[rendezvous][torch_memory]") {
  TorchWorld world;
  std::vector<Client> modest;
  for (int i = 0; i < 4; ++i) {
    modest.push_back(validated(*world.server));
    modest.back().send(part_of_set("k", 50 * kMiB + 1, 50 * kMiB));
  }
  auto greedy = validated(*world.server);
  greedy.send(part_of_set("k", 64 * kMiB, 60 * kMiB));
  CHECK(greedy.is_dropped());
  for (auto& client : modest) {
    client.send("v");
    client.expect_in_step();
  }
}

TEST_CASE("half-received values up to the limit drop no client", "[rendezvous][torch_memory]") {
  TorchWorld world(limited_to(32 * kMiB));
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(validated(*world.server));
    clients.back().send(part_of_set("k", 7 * kMiB, 7 * kMiB - 1));
  }
  for (auto& client : clients) {
    client.send("v");
    client.expect_in_step();
  }
}

TEST_CASE("answers that are not read share the store's values", "[rendezvous][torch_memory]") {
  TorchWorld world;
  auto good = validated(*world.server);
  good.send(set("large", std::string(60 * kMiB, 'v')));
  good.expect_in_step();
  size_t before = resident_bytes();
  std::vector<Client> idle;
  for (int i = 0; i < 12; ++i) {
    idle.push_back(validated(*world.server));
    idle.back().send(multi_get({"large", "large", "large"}));
    CHECK(idle.back().receive(8) == number(60 * kMiB));
  }
  good.expect_in_step();
  CHECK(resident_bytes() < before + 512 * kMiB);
}

TEST_CASE("many clients that read one value at once are all served", "[rendezvous][torch_memory]") {
  TorchWorld world(limited_to(32 * kMiB));
  std::vector<Client> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(validated(*world.server));
    clients.back().send(wait({"k"}));
  }
  auto setting = validated(*world.server);
  const std::string value(12 * kMiB, 'v');
  setting.send(set("k", value));
  for (auto& client : clients) {
    CHECK(client.receive(1) == type(0));
    client.send(get("k"));
  }
  setting.expect_in_step();
  for (auto& client : clients) CHECK(client.receive(8 + value.size()) == text(value));
}

TEST_CASE("values that were replaced before their readers took them count", "[rendezvous][torch_memory]") {
  TorchWorld world(limited_to(32 * kMiB));
  auto setting = validated(*world.server);
  std::vector<Client> idle;
  for (int i = 0; i < 3; ++i) {
    setting.send(set("k", std::string(15 * kMiB, 'v')));
    setting.expect_in_step();
    idle.push_back(validated(*world.server));
    idle.back().send(get("k"));
    CHECK(idle.back().receive(8) == number(15 * kMiB));
  }
  setting.send(erase("k"));
  CHECK(setting.receive(8) == number(1));
  setting.expect_in_step();
  size_t num_served = 0;
  for (auto& client : idle) num_served += client.can_receive(15 * kMiB);
  CHECK(num_served == 2);
}

TEST_CASE("keys that are waited for count", "[rendezvous][torch_memory]") {
  TorchWorld world(limited_to(32 * kMiB));
  auto wait_for = [](uint64_t num_keys, uint64_t first) {
    std::string request = type(6) + number(num_keys);
    for (uint64_t i = 0; i < num_keys; ++i) request += text(number(first + i) + std::string(8000, 'k'));
    return request;
  };
  auto modest = validated(*world.server), greedy = validated(*world.server);
  modest.send(wait_for(800, 0));
  modest.expect_in_step();
  greedy.send(wait_for(1400, 800));
  CHECK(greedy.is_dropped());
  modest.expect_in_step();
}

TEST_CASE("many small answers that are not read come later, in order", "[rendezvous][torch_memory]") {
  TorchWorld world;
  auto client = validated(*world.server), good = validated(*world.server);
  std::string requests, answers;
  for (uint32_t i = 0; i < 1000000; ++i) {
    requests += ping(i);
    answers += number(i, 4);
  }
  client.send(requests);
  good.expect_in_step();
  CHECK(client.receive(answers.size()) == answers);
}
