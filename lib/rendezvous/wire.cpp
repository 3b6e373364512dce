#include "rendezvous/wire.hpp"

#include <algorithm>

namespace dslaunch::rendezvous::wire {

namespace {

template <size_t N>
std::array<uint8_t, N> array_of(std::string_view bytes) {
  std::array<uint8_t, N> out{};
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

void expect_magic(Reader& reader) {
  if (reader.bytes(kMagic.size()) != kMagic) throw WireError("does not begin with DSLSTORE");
}

bool is_known(uint8_t type) {
  return (type >= static_cast<uint8_t>(Type::kSet) && type <= static_cast<uint8_t>(Type::kErase)) ||
         (type >= static_cast<uint8_t>(Type::kReply) && type <= static_cast<uint8_t>(Type::kServerLeaves));
}

}  // namespace

std::string encode(const Frame& frame) {
  return Writer()
      .u32(static_cast<uint32_t>(frame.body.size() + 5))
      .u8(static_cast<uint8_t>(frame.type))
      .u32(frame.request)
      .bytes(frame.body)
      .take();
}

size_t decode_length(std::string_view four_bytes) {
  size_t length = Reader(four_bytes).u32();
  if (length < 5 || length > kMaxFrameBytes) throw WireError("frame length out of range");
  return length;
}

Frame decode(std::string_view rest) {
  Reader reader(rest);
  uint8_t type = reader.u8();
  if (!is_known(type)) throw WireError("unknown message type");
  Frame frame{static_cast<Type>(type), reader.u32(), {}};
  frame.body = rest.substr(5);
  return frame;
}

std::string encode(const Hello& hello) {
  return Writer().bytes(kMagic).u16(hello.version).bytes(hello.nonce).take();
}
Hello decode_hello(std::string_view block) {
  Reader reader(block);
  expect_magic(reader);
  Hello hello{reader.u16(), array_of<kNonceBytes>(reader.bytes(kNonceBytes))};
  reader.expect_end();
  return hello;
}

std::string encode(const ClientProof& proof) {
  std::string host = proof.host.substr(0, kMaxHostBytes);
  Writer writer;
  writer.bytes(proof.proof).u32(proof.rank).u32(proof.world_size).u8(static_cast<uint8_t>(host.size()));
  host.resize(kMaxHostBytes, '\0');
  return writer.bytes(host).take();
}
ClientProof decode_client_proof(std::string_view block) {
  Reader reader(block);
  ClientProof out;
  out.proof = array_of<kProofBytes>(reader.bytes(kProofBytes));
  out.rank = reader.u32();
  out.world_size = reader.u32();
  size_t length = reader.u8();
  out.host = reader.bytes(kMaxHostBytes).substr(0, length);
  reader.expect_end();
  return out;
}
std::string_view proven_part(std::string_view client_proof_block) {
  return client_proof_block.substr(kProofBytes);
}

std::string encode(const ServerProof& proof) {
  return Writer().u8(static_cast<uint8_t>(proof.admission)).bytes(proof.proof).u32(proof.world_size).take();
}
ServerProof decode_server_proof(std::string_view block) {
  Reader reader(block);
  ServerProof out;
  uint8_t admission = reader.u8();
  if (admission > static_cast<uint8_t>(Admission::kRankTaken)) throw WireError("unknown admission code");
  out.admission = static_cast<Admission>(admission);
  out.proof = array_of<kProofBytes>(reader.bytes(kProofBytes));
  out.world_size = reader.u32();
  reader.expect_end();
  return out;
}

}  // namespace dslaunch::rendezvous::wire
