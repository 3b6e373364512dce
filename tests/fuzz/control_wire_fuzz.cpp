// Any bytes as what arrives at either end of the control channel, in pieces that the first byte chooses. A message
// that is read must be written and read again as the same bytes; what is none must end in Error and nothing else.
#include <cstdlib>

#include "base/error.hpp"
#include "launch/channel/wire.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

template <class Message>
void check_round_trip(const Message& message) {
  std::string written = encode(message);
  FrameReader<Message> reader;
  reader.append(written);
  auto again = reader.next();
  if (!again || reader.num_pending() != 0 || encode(*again) != written) std::abort();
}

template <class Message>
void read_in_pieces(std::string_view input, size_t piece) {
  FrameReader<Message> reader;
  try {
    while (!input.empty()) {
      reader.append(input.substr(0, piece));
      input.remove_prefix(std::min(piece, input.size()));
      while (auto message = reader.next()) check_round_trip(*message);
    }
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  size_t piece = 1 + data[0];
  read_in_pieces<MessageToAgent>(input, piece);
  read_in_pieces<MessageToLauncher>(input, piece);
  return 0;
}
