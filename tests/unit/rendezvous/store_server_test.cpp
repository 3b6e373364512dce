// Clients that misbehave, spoken byte by byte: none may harm the server or the ranks that are there.
#include "rendezvous/store_server.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/token_proof.hpp"
#include "rendezvous/wire.hpp"
#include "unit/rendezvous/store_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;

namespace {

UniqueFd connect_raw(const StoreWorld& world) {
  auto attempt = connect_once("127.0.0.1", world.server->port(), soon());
  REQUIRE(attempt.ok());
  return *std::move(attempt);
}

bool is_dropped(const UniqueFd& fd) {
  std::string bytes;
  // Whatever the server still says, the connection has to end.
  for (int i = 0; i < 4096; ++i) {
    auto outcome = receive_exactly(fd.get(), bytes, 1, soon());
    if (outcome == IoOutcome::kClosed) return true;
    if (outcome == IoOutcome::kTimedOut) return false;
  }
  return false;
}

// An admitted connection of rank 1.
UniqueFd join_raw(const StoreWorld& world) {
  auto fd = connect_raw(world);
  wire::Hello hello{wire::kVersion, fresh_nonce()};
  std::string block;
  REQUIRE(send_all(fd.get(), wire::encode(hello), soon()) == IoOutcome::kDone);
  REQUIRE(receive_exactly(fd.get(), block, wire::kHelloBytes, soon()) == IoOutcome::kDone);
  auto answer = wire::decode_hello(block);
  wire::ClientProof claim{{}, 1, 2, "raw"};
  auto unproven = wire::encode(claim);
  claim.proof = client_proof(world.token, hello.nonce, answer.nonce, wire::proven_part(unproven));
  REQUIRE(send_all(fd.get(), wire::encode(claim), soon()) == IoOutcome::kDone);
  REQUIRE(receive_exactly(fd.get(), block, wire::kServerProofBytes, soon()) == IoOutcome::kDone);
  REQUIRE(wire::decode_server_proof(block).admission == wire::Admission::kAdmitted);
  return fd;
}

void check_unharmed(const StoreWorld& world, Store& rank0) {
  CHECK(rank0.add("alive", 1, soon()) >= 1);
  CHECK(world.server->joined_ranks().front() == 0);
}

}  // namespace

TEST_CASE("an unknown protocol is dropped at its first byte", "[rendezvous][store_server]") {
  StoreWorld world(2);
  auto rank0 = world.join(0, 2);
  for (std::string garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1, '\0'), std::string(1 << 16, '\xff')}) {
    auto fd = connect_raw(world);
    send_all(fd.get(), garbage, soon());
    CHECK(is_dropped(fd));
  }
  auto fd = connect_raw(world);
  send_all(fd.get(), "DSLSTORX" + std::string(34, 'x'), soon());
  CHECK(is_dropped(fd));
  check_unharmed(world, *rank0);
}

TEST_CASE("a client that does not prove the token in time is dropped", "[rendezvous][store_server]") {
  StoreWorld world(2, std::chrono::milliseconds(60));
  auto rank0 = world.join(0, 2);
  auto silent = connect_raw(world), slow = connect_raw(world);
  send_all(slow.get(), "DSLST", soon());
  CHECK(is_dropped(silent));
  CHECK(is_dropped(slow));
  check_unharmed(world, *rank0);
}

TEST_CASE("a replayed proof is refused", "[rendezvous][store_server]") {
  StoreWorld world(2);
  wire::Hello hello{wire::kVersion, fresh_nonce()};
  auto first = connect_raw(world), second = connect_raw(world);
  std::string block;
  wire::ClientProof claim{{}, 1, 2, "raw"};
  send_all(first.get(), wire::encode(hello), soon());
  REQUIRE(receive_exactly(first.get(), block, wire::kHelloBytes, soon()) == IoOutcome::kDone);
  auto unproven = wire::encode(claim);
  claim.proof = client_proof(world.token, hello.nonce, wire::decode_hello(block).nonce, wire::proven_part(unproven));
  send_all(second.get(), wire::encode(hello), soon());
  REQUIRE(receive_exactly(second.get(), block, wire::kHelloBytes, soon()) == IoOutcome::kDone);
  send_all(second.get(), wire::encode(claim), soon());
  REQUIRE(receive_exactly(second.get(), block, wire::kServerProofBytes, soon()) == IoOutcome::kDone);
  CHECK(wire::decode_server_proof(block).admission == wire::Admission::kWrongToken);
  CHECK(is_dropped(second));
  CHECK(world.server->joined_ranks().empty());
}

TEST_CASE("a modified identity is refused", "[rendezvous][store_server]") {
  StoreWorld world(2);
  auto fd = connect_raw(world);
  wire::Hello hello{wire::kVersion, fresh_nonce()};
  std::string block;
  send_all(fd.get(), wire::encode(hello), soon());
  REQUIRE(receive_exactly(fd.get(), block, wire::kHelloBytes, soon()) == IoOutcome::kDone);
  wire::ClientProof claim{{}, 1, 2, "raw"};
  auto unproven = wire::encode(claim);
  claim.proof = client_proof(world.token, hello.nonce, wire::decode_hello(block).nonce, wire::proven_part(unproven));
  claim.rank = 0;
  send_all(fd.get(), wire::encode(claim), soon());
  REQUIRE(receive_exactly(fd.get(), block, wire::kServerProofBytes, soon()) == IoOutcome::kDone);
  CHECK(wire::decode_server_proof(block).admission == wire::Admission::kWrongToken);
}

TEST_CASE("another version is told so", "[rendezvous][store_server]") {
  StoreWorld world(2);
  auto fd = connect_raw(world);
  std::string block;
  send_all(fd.get(), wire::encode(wire::Hello{77, fresh_nonce()}), soon());
  REQUIRE(receive_exactly(fd.get(), block, wire::kHelloBytes, soon()) == IoOutcome::kDone);
  send_all(fd.get(), wire::encode(wire::ClientProof{}), soon());
  REQUIRE(receive_exactly(fd.get(), block, wire::kServerProofBytes, soon()) == IoOutcome::kDone);
  CHECK(wire::decode_server_proof(block).admission == wire::Admission::kWrongVersion);
  CHECK(is_dropped(fd));
}

TEST_CASE("an admitted client that breaks the protocol is dropped and counts as lost", "[rendezvous][store_server]") {
  auto oversized = wire::Writer().u32(0x7fffffff).take();
  auto unknown = wire::encode(wire::Frame{static_cast<wire::Type>(40), 1, {}});
  auto cut_short = wire::encode(wire::Frame{wire::Type::kSet, 1, "\x10"});
  auto long_key = wire::encode(
      wire::Frame{wire::Type::kGet, 1, wire::Writer().text(std::string(wire::kMaxKeyBytes + 1, 'k')).u64(1).take()});
  auto too_much = wire::encode(wire::Frame{wire::Type::kTryGet, 1, wire::Writer().text("k").u8(1).take()});
  auto more_than_a_reason =
      wire::encode(wire::Frame{wire::Type::kReportFailure, 1, wire::Writer().text("it is over").u8(1).take()});
  auto more_than_nothing = wire::encode(wire::Frame{wire::Type::kLeave, 1, "x"});
  for (const auto& bytes : {oversized, unknown, cut_short, long_key, too_much, more_than_a_reason, more_than_nothing}) {
    StoreWorld world(2);
    auto rank0 = world.join(0, 2);
    auto fd = join_raw(world);
    send_all(fd.get(), bytes, soon());
    CHECK(is_dropped(fd));
    CHECK_THROWS(rank0->get("never", soon()));
    check_unharmed(world, *rank0);
  }
}

TEST_CASE("many unauthenticated connections do not keep a rank out", "[rendezvous][store_server]") {
  StoreWorld world(2);
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(connect_raw(world));
  auto rank0 = world.join(0, 2);
  check_unharmed(world, *rank0);
}

TEST_CASE("a client that never reads its answers is dropped", "[rendezvous][store_server]") {
  StoreWorld world(2);
  auto rank0 = world.join(0, 2);
  rank0->set("large", std::string(8 << 20, 'v'), soon());
  auto fd = join_raw(world);
  auto ask = wire::encode(wire::Frame{wire::Type::kGet, 1, wire::Writer().text("large").u64(1000).take()});
  for (int i = 0; i < 64; ++i) send_all(fd.get(), ask, soon());
  CHECK_THROWS(rank0->get("never", soon()));
  check_unharmed(world, *rank0);
}

TEST_CASE("the server knows when all ranks have left", "[rendezvous][store_server]") {
  StoreWorld world(2);
  CHECK(world.server->wait_until_all_left(in_ms(0)));
  auto first = world.join(0, 2), second = world.join(1, 2);
  CHECK_FALSE(world.server->wait_until_all_left(in_ms(10)));
  first->leave();
  second.reset();
  CHECK(world.server->wait_until_all_left(soon()));
}
