#include "rendezvous/handshake.hpp"

#include <catch2/catch.hpp>

#include "base/bytes.hpp"
#include "rendezvous/token_proof.hpp"

using namespace dslaunch::rendezvous;
using wire::Admission;

namespace {

constexpr uint32_t kWorld = 4;

// One client's way through it.
struct Visit {
  std::vector<uint8_t> server_token = dslaunch::random_bytes(32), client_token = server_token;
  uint16_t version = wire::kVersion;
  uint32_t rank = 1, world_size = kWorld;
  wire::Hello hello{version, fresh_nonce()}, answer{};
  ServerHandshake handshake{server_token, kWorld};

  ServerHandshake::Judged judged() {
    hello.version = version;
    answer = wire::decode_hello(handshake.accept_hello(wire::encode(hello)));
    wire::ClientProof claim{{}, rank, world_size, "host"};
    const auto unproven = wire::encode(claim);
    claim.proof = client_proof(client_token, hello.nonce, answer.nonce, wire::proven_part(unproven));
    return handshake.check_proof(wire::encode(claim));
  }
};

}  // namespace

TEST_CASE("a client with the token and the right world is admitted, and gets the server's proof",
          "[rendezvous][handshake]") {
  Visit visit;
  const auto [admission, claim] = visit.judged();
  CHECK(admission == Admission::kAdmitted);
  CHECK(claim.rank == 1);
  CHECK(claim.host == "host");
  const auto last = wire::decode_server_proof(visit.handshake.answer(admission));
  CHECK(last.admission == Admission::kAdmitted);
  CHECK(last.world_size == kWorld);
  CHECK(last.proof == server_proof(visit.server_token, visit.hello.nonce, visit.answer.nonce));
}

TEST_CASE("a rejected client gets the reason, and no proof", "[rendezvous][handshake]") {
  Visit unknown_peer, old, elsewhere, beyond;
  unknown_peer.client_token = dslaunch::random_bytes(32);
  old.version = 77;
  elsewhere.world_size = kWorld + 1;
  beyond.rank = kWorld;
  CHECK(unknown_peer.judged().admission == Admission::kWrongToken);
  CHECK(old.judged().admission == Admission::kWrongVersion);
  CHECK(elsewhere.judged().admission == Admission::kWrongWorld);
  CHECK(beyond.judged().admission == Admission::kWrongWorld);
  CHECK(wire::decode_server_proof(beyond.handshake.answer(Admission::kWrongWorld)).proof == wire::Proof{});
}
