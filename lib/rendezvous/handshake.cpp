#include "rendezvous/handshake.hpp"

#include "rendezvous/token_proof.hpp"

namespace dslaunch::rendezvous {

std::string ServerHandshake::accept_hello(std::string_view block) {
  const auto hello = wire::decode_hello(block);
  known_version_ = hello.version == wire::kVersion;
  client_nonce_ = hello.nonce;
  server_nonce_ = fresh_nonce();
  return wire::encode(wire::Hello{wire::kVersion, server_nonce_});
}

ServerHandshake::Judged ServerHandshake::check_proof(std::string_view block) const {
  if (!known_version_) return {wire::Admission::kWrongVersion, {}};
  Judged out{wire::Admission::kAdmitted, wire::decode_client_proof(block)};
  const auto expected = client_proof(token_, client_nonce_, server_nonce_, wire::proven_part(block));
  if (!same_proof(out.claim.proof, expected)) {
    out.admission = wire::Admission::kWrongToken;
  } else if (out.claim.world_size != world_size_ || out.claim.rank >= world_size_) {
    out.admission = wire::Admission::kWrongWorld;
  }
  return out;
}

std::string ServerHandshake::answer(wire::Admission admission) const {
  wire::ServerProof verdict{admission, {}, world_size_};
  if (admission == wire::Admission::kAdmitted) verdict.proof = server_proof(token_, client_nonce_, server_nonce_);
  return wire::encode(verdict);
}

}  // namespace dslaunch::rendezvous
