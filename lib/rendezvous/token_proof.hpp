// Both sides of a connection prove that they know the job's token without sending it: HMAC-SHA256 over both nonces.
#pragma once
#include <span>
#include <string_view>

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

// The proof that the client sends. It covers `identity` (rank, host, world size), so the identity cannot be changed in
// transit.
wire::Proof client_proof(std::span<const uint8_t> token, const wire::Nonce& client, const wire::Nonce& server,
                         std::string_view identity);
// The proof that the server answers with. Uses another label, so that one proof can never be replayed as the other.
wire::Proof server_proof(std::span<const uint8_t> token, const wire::Nonce& client, const wire::Nonce& server);
// Compares in constant time.
bool same_proof(const wire::Proof& left, const wire::Proof& right);

wire::Nonce fresh_nonce();

}  // namespace dslaunch::rendezvous
