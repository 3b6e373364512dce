// An answer to a torch client: pieces that are sent one after another. Large values are shared, not copied.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/shared_value.hpp"
#include "rendezvous/torch_protocol.hpp"

namespace dslaunch::rendezvous {

class TorchAnswer {
 public:
  TorchAnswer() = default;                                   // none
  TorchAnswer(std::string bytes) { add(std::move(bytes)); }  // NOLINT(google-explicit-constructor)

  void add(std::string bytes) {
    if (bytes.empty()) return;
    auto* last = pieces_.empty() ? nullptr : std::get_if<std::string>(&pieces_.back());
    if (last) {
      *last += bytes;
    } else {
      pieces_.emplace_back(std::move(bytes));
    }
  }

  // Adds the value, preceded by its length.
  void add_value(const std::shared_ptr<const SharedValue>& value) {
    constexpr size_t kMinSharedBytes = 4096;  // below this size, copying costs less than a separate piece
    const std::string& bytes = value->bytes();
    if (bytes.size() < kMinSharedBytes) return add(torch_wire::encode_value(bytes));
    add(torch_wire::encode_number(static_cast<int64_t>(bytes.size())));
    pieces_.emplace_back(value);
  }

  std::vector<OutputPiece> take() { return std::move(pieces_); }

 private:
  std::vector<OutputPiece> pieces_;
};

}  // namespace dslaunch::rendezvous
