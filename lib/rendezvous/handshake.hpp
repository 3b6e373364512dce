// The server's half of the handshake (docs/wire.md), wherever clients come to: to the store, or to node rank 0 before
// there is one. Two blocks in, each answered by one. Pure but for the nonce; one thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

class ServerHandshake {
 public:
  // Of one connection; `token` must outlive it.
  ServerHandshake(std::span<const uint8_t> token, uint32_t world_size) : token_(token), world_size_(world_size) {}

  // The client's hello; returns ours. Throws WireError.
  std::string accept_hello(std::string_view block);

  // The client's proof. What is admitted here has proven itself and fits the world; whether its place is free the
  // caller knows. A claim in another version's form is not read. Throws WireError.
  struct Judged {
    wire::Admission admission{};
    wire::ClientProof claim;
  };
  Judged judge_proof(std::string_view block) const;

  // The last block: what became of it.
  std::string answer(wire::Admission admission) const;

 private:
  const std::span<const uint8_t> token_;
  const uint32_t world_size_;
  bool known_version_ = false;
  wire::Nonce client_nonce_{}, server_nonce_{};
};

}  // namespace dslaunch::rendezvous
