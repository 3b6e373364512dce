// Torch's protocol through the server's socket: who is admitted, what the two protocols see of each other, and clients
// that misbehave. That a real torch client is content is shown by tests/multiproc/test_torch_store.py.
#include <sys/fsuid.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "rendezvous/torch_protocol.hpp"
#include "unit/rendezvous/torch_requests.hpp"
#include "unit/rendezvous/torch_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;
using namespace torch_bytes;

TEST_CASE("torch clients and dslaunch ranks share a port but no keys", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto rank0 = world.join(0);
  auto torch = validated(*world.server);
  rank0->set("k", "ours", soon());
  torch.expect(check({"k"}), type(1));
  torch.expect(num_keys(), number(0));
  torch.send(set("k", "torch's"));
  torch.expect(get("k"), text("torch's"));
  CHECK(rank0->get("k", soon()) == "ours");
  CHECK(world.server->joined_ranks() == std::vector<int>{0});
}

TEST_CASE("torch clients are rejected unless enabled", "[rendezvous][torch_session]") {
  StoreWorld world(2);
  Client client(*world.server);
  client.send(validate() + ping(1));
  CHECK(client.is_dropped());
}

TEST_CASE("torch's clients are admitted by address", "[rendezvous][torch_session]") {
  SECTION("from this machine") {
    TorchWorld world({{}, true});
    Client client(*world.server, "127.0.0.3");
    client.send(validate());
    client.expect_in_step();
  }
  SECTION("only from the addresses that are named") {
    TorchWorld world({{"127.0.0.2", "::1", "10.1.2.3"}, false});
    Client named(*world.server, "127.0.0.2"), other(*world.server, "127.0.0.3");
    named.send(validate());
    named.expect_in_step();
    other.send(validate() + ping(1));
    CHECK(other.is_dropped());
    named.expect_in_step();
  }
  SECTION("our ranks prove the token and come from anywhere") {
    TorchWorld world({{}, false});
    auto rank0 = world.join(0);
    rank0->set("k", "v", soon());
    CHECK(rank0->get("k", soon()) == "v");
  }
}

// Only root can make sockets for another user.
TEST_CASE("torch's clients of another local user are refused", "[rendezvous][torch_session]") {
  if (::geteuid() != 0) return;
  constexpr uid_t kOther = 54321;
  TorchWorld world({{"127.0.0.1"}, true});
  auto own = validated(*world.server);
  ::setfsuid(kOther);  // of this thread alone
  Client other(*world.server, "127.0.0.1"), vanishing(*world.server, "127.0.0.1");
  ::setfsuid(0);
  other.send(validate() + ping(1));
  CHECK(other.is_dropped());
  // The kernel's answer about a socket that was closed names root.
  vanishing.send(validate() + set("k", "v"));
  vanishing.end();
  own.expect_in_step();
  own.expect(check({"k"}), type(1));
}

TEST_CASE("rejects an invalid address to admit", "[rendezvous][torch_session]") {
  CHECK_THROWS(TorchWorld({{"node1"}, false}));
}

TEST_CASE("a wait ends when another client sets the key, and not before", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto waiting = validated(*world.server), setting = validated(*world.server);
  waiting.send(wait({"a", "b"}));
  setting.send(set("a", "1"));
  setting.expect_in_step();
  // Taken back, as torch's client does when its time is up; the answer is that of the cancelling alone.
  waiting.expect(cancel_wait(), type(1));
  setting.send(set("b", "1"));
  setting.expect_in_step();
  waiting.expect_in_step();
  waiting.send(wait({"c"}));
  setting.send(set("c", "1"));
  CHECK(waiting.receive(1) == type(0));
}

TEST_CASE("a client that disconnects while it waits affects no other client", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto staying = validated(*world.server), setting = validated(*world.server);
  {
    auto vanishing = validated(*world.server);
    vanishing.send(wait({"k"}));
    vanishing.expect_in_step();
  }
  staying.send(wait({"k"}));
  staying.expect_in_step();
  setting.send(set("k", "v"));
  setting.expect_in_step();
  CHECK(staying.receive(1) == type(0));
}

TEST_CASE("large values of any bytes come back unchanged", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto client = validated(*world.server);
  std::string value(torch_wire::kMaxValueBytes, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761u >> 13);
  client.send(set("large", value));
  client.send(get("large"));
  CHECK(client.receive(8) == number(value.size()));
  CHECK(client.receive(value.size()) == value);
  client.expect_in_step();
}

TEST_CASE("only the torch client that breaks the protocol is dropped", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto good = validated(*world.server);
  good.send(wait({"k"}));
  const std::vector<std::string> openings{std::string("\x00\x01\x02\x03\x04", 5), set("k", "v"), ping(1)};
  for (const auto& opening : openings) {
    Client client(*world.server);
    client.send(opening);
    CHECK(client.is_dropped());
  }
  const std::vector<std::string> requests{validate(),
                                          type(18),
                                          type(200),
                                          type(1) + number(~uint64_t{0}),
                                          type(1) + text("k") + number(torch_wire::kMaxValueBytes + 1),
                                          type(5) + number(torch_wire::kMaxKeys + 1),
                                          set("n", "no number") + add("n", 1)};
  for (const auto& request : requests) {
    auto client = validated(*world.server);
    client.send(request);
    CHECK(client.is_dropped());
  }
  auto setting = validated(*world.server);
  setting.send(set("k", "v"));
  CHECK(good.receive(1) == type(0));
}

TEST_CASE("a torch client that does not validate in time is dropped", "[rendezvous][torch_session]") {
  TorchWorld world({}, std::chrono::milliseconds(60));
  auto good = validated(*world.server);
  Client slow(*world.server);
  slow.send(validate().substr(0, 3));
  CHECK(slow.is_dropped());
  good.expect_in_step();
}

TEST_CASE("a torch client that never reads its answers is dropped", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto good = validated(*world.server), greedy = validated(*world.server);
  good.send(set("large", std::string(32u << 20, 'v')));
  good.expect_in_step();
  for (int i = 0; i < 16; ++i) greedy.send(get("large"));
  good.expect_in_step();
  // What it was promised does not come whole.
  CHECK_FALSE(greedy.can_receive(16 * (8 + (size_t{32} << 20))));
}

TEST_CASE("torch's clients end with the server", "[rendezvous][torch_session]") {
  TorchWorld world;
  auto client = validated(*world.server);
  client.send(wait({"never"}));
  client.expect_in_step();
  world.server.reset();
  CHECK(client.is_dropped());
}
