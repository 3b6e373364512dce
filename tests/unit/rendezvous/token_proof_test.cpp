#include "rendezvous/token_proof.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "base/bytes.hpp"

namespace rdv = dslaunch::rendezvous;

// The expected values come from Python's hmac module over the bytes that docs/wire.md describes.
TEST_CASE("proofs are HMAC-SHA256 over label, nonces and identity", "[rendezvous][token_proof]") {
  std::vector<uint8_t> token(32);
  std::iota(token.begin(), token.end(), uint8_t{0});
  rdv::wire::Nonce client, server;
  client.fill(0xA0);
  server.fill(0xB0);
  CHECK(dslaunch::to_hex(rdv::client_proof(token, client, server, "identity")) ==
        "3afafc60abe28b8730a528e9f39f7b4f89354d0e56afc37f900d64e2fb3a24a6");
  CHECK(dslaunch::to_hex(rdv::server_proof(token, client, server)) ==
        "af02b57204ef61bef7b51548f6eabd561b47f732a81567dfd2e887959d66b1d3");
  CHECK(dslaunch::to_hex(rdv::server_proof({}, client, server)) ==
        "b399dd6a5b6e44d3d55fd3a194020298b1e319f5777a2edbcf14a1f9dfeec40d");
}

TEST_CASE("proofs differ when a single bit differs", "[rendezvous][token_proof]") {
  rdv::wire::Proof left{};
  auto right = left;
  CHECK(rdv::same_proof(left, right));
  right.back() ^= 1;
  CHECK_FALSE(rdv::same_proof(left, right));
}

TEST_CASE("nonces do not repeat", "[rendezvous][token_proof]") {
  CHECK(rdv::fresh_nonce() != rdv::fresh_nonce());
}
