// Both sides of a connection prove that they know the job's token without sending it: HMAC-SHA256 over both nonces.
#pragma once
#include <span>
#include <string_view>

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

// What the client sends; `identity` (its rank, host, world size) is covered, so nobody can change it on the way.
wire::Proof client_proof(std::span<const uint8_t> token, const wire::Nonce& client, const wire::Nonce& server,
                         std::string_view identity);
// What the server answers; another label, so that one proof can never be sent back as the other.
wire::Proof server_proof(std::span<const uint8_t> token, const wire::Nonce& client, const wire::Nonce& server);
// In constant time.
bool same_proof(const wire::Proof& left, const wire::Proof& right);

wire::Nonce fresh_nonce();

}  // namespace dslaunch::rendezvous
