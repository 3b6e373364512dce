#include "rendezvous/node_rendezvous.hpp"

#include <catch2/catch.hpp>
#include <future>

#include "ports/held_port.hpp"
#include "rendezvous/wire.hpp"
#include "unit/rendezvous/store_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;

TEST_CASE("a node of another version is told so, and the other nodes still join", "[rendezvous][node_rendezvous]") {
  const auto token = random_bytes(32);
  auto listener = listen_on(0, true);
  const uint16_t port = ports::bound_port(listener.get());
  auto meeting =
      std::async(std::launch::async, [&] { return await_nodes(listener.get(), token, 2, soon(), [](auto&) {}); });

  auto other = connect_once("127.0.0.1", port, soon());
  REQUIRE(other.ok());
  std::string block;
  send_all(other->get(), wire::encode(wire::Hello{77, {}}), soon());
  REQUIRE(receive_exactly(other->get(), block, wire::kHelloBytes, soon()) == IoOutcome::kDone);
  send_all(other->get(), wire::encode(wire::ClientProof{}), soon());
  REQUIRE(receive_exactly(other->get(), block, wire::kServerProofBytes, soon()) == IoOutcome::kDone);
  CHECK(wire::decode_server_proof(block).admission == wire::Admission::kWrongVersion);
  CHECK(receive_exactly(other->get(), block, 1, soon()) == IoOutcome::kClosed);

  const auto way = connect_to_master({"127.0.0.1", port, token, 1, 2, std::nullopt}, soon(), [] {});
  CHECK(way.valid());
  const auto met = meeting.get();
  REQUIRE(met.size() == 1);
  CHECK(met[0].node_rank == 1);
}
