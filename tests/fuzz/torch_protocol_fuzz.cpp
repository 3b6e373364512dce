// Any bytes as what a torch client sends: read at once and in pieces, with the same requests coming out, and carried
// out by a key space. The first byte of the input chooses the pieces.
#include <cstdlib>
#include <vector>

#include "rendezvous/torch_key_space.hpp"
#include "rendezvous/torch_protocol.hpp"
#include "rendezvous/wire.hpp"

using namespace dslaunch::rendezvous;

namespace {

struct Outcome {
  std::vector<torch_wire::Request> requests;
  bool broken = false;
};

Outcome read(std::string_view input, size_t piece) {
  Outcome out;
  torch_wire::RequestReader reader;
  try {
    while (!input.empty()) {
      auto part = input.substr(0, piece);
      input.remove_prefix(part.size());
      while (auto request = reader.next(part)) out.requests.push_back(std::move(*request));
      if (!part.empty()) std::abort();
    }
  } catch (const wire::WireError&) {
    out.broken = true;
  }
  return out;
}

bool same(const torch_wire::Request& left, const torch_wire::Request& right) {
  return left.type == right.type && left.keys == right.keys && left.values == right.values &&
         left.number == right.number;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto whole = read(input, input.size()), pieces = read(input, 1 + data[0] % 16);
  if (whole.broken != pieces.broken || whole.requests.size() != pieces.requests.size()) std::abort();
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    if (!same(whole.requests[i], pieces.requests[i])) std::abort();
  }
  size_t num_woken = 0;
  TorchKeySpace space([&](TorchKeySpace::Client) { ++num_woken; });
  TorchKeySpace::Client client = 0;
  for (auto& request : whole.requests) {
    bool waits = request.type == torch_wire::Type::kWait;
    try {
      space.handle(client % 3, std::move(request));
    } catch (const wire::WireError&) {
      space.forget(client % 3);
    }
    client += waits;  // so that others ask meanwhile
  }
  return num_woken > whole.requests.size() ? std::abort(), 0 : 0;
}
