#include "rendezvous/token_proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace dslaunch::rendezvous {

namespace {

wire::Proof hmac_sha256(std::span<const uint8_t> key, const std::string& message) {
  wire::Proof out{};
  unsigned int length = 0;
  const unsigned char empty = 0;  // HMAC takes a null key to mean the previous key
  const void* bytes = key.empty() ? &empty : key.data();
  const auto* text = reinterpret_cast<const unsigned char*>(message.data());
  bool done = HMAC(EVP_sha256(), bytes, static_cast<int>(key.size()), text, message.size(), out.data(), &length);
  DSL_CHECK(done && length == out.size(), "HMAC-SHA256 failed in libcrypto");
  return out;
}

}  // namespace

wire::Proof client_proof(std::span<const uint8_t> token, const wire::Nonce& client, const wire::Nonce& server,
                         std::string_view identity) {
  return hmac_sha256(
      token, wire::Writer().text("dslaunch store 1: client").bytes(client).bytes(server).bytes(identity).take());
}

wire::Proof server_proof(std::span<const uint8_t> token, const wire::Nonce& client, const wire::Nonce& server) {
  return hmac_sha256(token, wire::Writer().text("dslaunch store 1: server").bytes(client).bytes(server).take());
}

bool same_proof(const wire::Proof& left, const wire::Proof& right) {
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

wire::Nonce fresh_nonce() {
  auto bytes = random_bytes(wire::kNonceBytes);
  wire::Nonce out{};
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

}  // namespace dslaunch::rendezvous
