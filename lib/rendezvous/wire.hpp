// The bytes of the store's protocol (docs/wire.md): the handshake's fixed blocks and the frames after it. Pure. For a
// malformed block or frame the reader throws WireError, and the caller drops that connection.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/byte_fields.hpp"

namespace dslaunch::rendezvous::wire {

// The first byte distinguishes our protocol from torch's, whose clients open with 0x00.
inline constexpr std::string_view kMagic = "DSLSTORE";
inline constexpr uint16_t kVersion = 1;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kMaxKeyBytes = 4096;
inline constexpr size_t kMaxValueBytes = 16u << 20;
inline constexpr size_t kMaxTextBytes = 4096;  // host names, reasons
inline constexpr size_t kMaxFrameBytes = 2 * kMaxValueBytes + kMaxKeyBytes + 64;
inline constexpr uint64_t kNoTimeout = ~uint64_t{0};

using Nonce = std::array<uint8_t, kNonceBytes>;
using Proof = std::array<uint8_t, kProofBytes>;

using dslaunch::WireError;
using Writer = ByteWriter;
using Reader = ByteReader;

enum class Type : uint8_t {
  kSet = 1,
  kGet = 2,
  kTryGet = 3,
  kAdd = 4,
  kCompareAndSet = 5,
  kBarrier = 6,
  kReportFailure = 7,
  kLeave = 8,
  kErase = 9,
  kReply = 64,
  kRankLost = 65,
  kServerLeaves = 66,
};

enum class Status : uint8_t { kOk = 0, kTimeout = 1, kPeerLost = 2, kRefused = 3 };

struct Frame {
  Type type{};
  uint32_t request = 0;  // 0 for an unsolicited frame
  std::string body;
};

// length (of the bytes after it), type, request, body.
inline constexpr size_t kLengthBytes = 4;
std::string encode(const Frame& frame);
// The length field, checked against the limit.
size_t decode_length(std::string_view four_bytes);
// Decodes the bytes after the length field.
Frame decode(std::string_view rest);

// Handshake, in this order. All sizes are fixed except the host name's, so unproven input cannot make us allocate.
struct Hello {  // the client's, then the server's
  uint16_t version = kVersion;
  Nonce nonce{};
};
inline constexpr size_t kHelloBytes = 8 + 2 + kNonceBytes;
std::string encode(const Hello& hello);
Hello decode_hello(std::string_view block);

struct ClientProof {
  Proof proof{};
  uint32_t rank = 0;
  uint32_t world_size = 0;
  std::string host;  // at most kMaxHostBytes
};
inline constexpr size_t kMaxHostBytes = 255;
inline constexpr size_t kClientProofBytes = kProofBytes + 4 + 4 + 1 + kMaxHostBytes;  // host padded with zeros
std::string encode(const ClientProof& proof);
ClientProof decode_client_proof(std::string_view block);
// The part of the block that the proof covers.
std::string_view proven_part(std::string_view client_proof_block);

enum class Admission : uint8_t { kAdmitted = 0, kWrongToken = 1, kWrongVersion = 2, kWrongWorld = 3, kRankTaken = 4 };
struct ServerProof {
  Admission admission{};
  Proof proof{};  // zeros unless admitted
  uint32_t world_size = 0;
};
inline constexpr size_t kServerProofBytes = 1 + kProofBytes + 4;
std::string encode(const ServerProof& proof);
ServerProof decode_server_proof(std::string_view block);

}  // namespace dslaunch::rendezvous::wire
