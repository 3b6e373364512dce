// Any bytes as each block of the handshake, and as a stream of frames. What is read must be written back as the same
// bytes; what cannot be read must end in WireError and nothing else.
#include <cstdlib>

#include "rendezvous/store_state.hpp"
#include "rendezvous/wire.hpp"

using namespace dslaunch::rendezvous;

namespace {

void require(bool good) {
  if (!good) std::abort();
}

template <class Decode>
void decode_block(std::string_view input, size_t size, Decode decode) {
  if (input.size() < size) return;
  auto block = input.substr(0, size);
  try {
    auto value = decode(block);
    // A proof's padding is not kept, nor are bytes behind the name.
    auto written = wire::encode(value);
    require(written.size() == block.size() && wire::encode(decode(written)) == written);
  } catch (const wire::WireError&) {
  }
}

void decode_fields(const wire::Frame& frame) {
  try {
    wire::Reader reader(frame.body);
    reader.text(wire::kMaxKeyBytes);
    reader.text(wire::kMaxValueBytes);
    reader.u64();
    reader.expect_end();
  } catch (const wire::WireError&) {
  }
  try {
    decode_lost_rank(frame.body);
  } catch (const wire::WireError&) {
  }
}

void decode_frames(std::string_view input) {
  try {
    while (input.size() >= wire::kLengthBytes) {
      size_t length = wire::decode_length(input.substr(0, wire::kLengthBytes));
      if (input.size() - wire::kLengthBytes < length) return;
      auto frame = wire::decode(input.substr(wire::kLengthBytes, length));
      require(wire::encode(frame) == input.substr(0, wire::kLengthBytes + length));
      decode_fields(frame);
      input.remove_prefix(wire::kLengthBytes + length);
    }
  } catch (const wire::WireError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  decode_block(input, wire::kHelloBytes, wire::decode_hello);
  decode_block(input, wire::kClientProofBytes, wire::decode_client_proof);
  decode_block(input, wire::kServerProofBytes, wire::decode_server_proof);
  decode_frames(input);
  return 0;
}
