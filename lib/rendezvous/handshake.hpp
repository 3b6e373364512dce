// The server's half of the handshake (docs/wire.md), for clients that connect to the store, or to node rank 0 before
// the store exists. Two blocks arrive, and each gets one block as its answer. Pure but for the nonce; one thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

class ServerHandshake {
 public:
  // Serves one connection; `token` must outlive it.
  ServerHandshake(std::span<const uint8_t> token, uint32_t world_size) : token_(token), world_size_(world_size) {}

  // Takes the client's hello and returns ours. Throws WireError.
  std::string accept_hello(std::string_view block);

  // Checks the client's proof. kAdmitted means that the client has proven the token and fits the world; whether its
  // rank is free, the caller must check. A claim in another version's format is not read. Throws WireError.
  struct Judged {
    wire::Admission admission{};
    wire::ClientProof claim;
  };
  Judged check_proof(std::string_view block) const;

  // The last block: the result of the handshake.
  std::string answer(wire::Admission admission) const;

 private:
  const std::span<const uint8_t> token_;
  const uint32_t world_size_;
  bool known_version_ = false;
  wire::Nonce client_nonce_{}, server_nonce_{};
};

}  // namespace dslaunch::rendezvous
