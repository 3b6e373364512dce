// A store value for torch's clients, shared with the answers that carry it: a large value costs its memory once,
// however many clients read it at the same time. One thread.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace dslaunch::rendezvous {

class SharedValue {
 public:
  explicit SharedValue(std::string bytes) : bytes_(std::move(bytes)) {}
  ~SharedValue() {
    if (outlived_bytes_) *outlived_bytes_ -= bytes_.size();
  }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;

  const std::string& bytes() const { return bytes_; }
  // Only while no answer carries the value.
  void append(const std::string& bytes) { bytes_ += bytes; }

  // The store has dropped this value. Until the last answer that carries it is destroyed, its size counts in the sum.
  void outlive_store(std::shared_ptr<size_t> outlived_bytes) {
    outlived_bytes_ = std::move(outlived_bytes);
    *outlived_bytes_ += bytes_.size();
  }
  bool outlives_store() const { return outlived_bytes_ != nullptr; }

 private:
  std::string bytes_;
  std::shared_ptr<size_t> outlived_bytes_;
};

// What a connection sends: bytes of its own, or a value shared with the store and other connections.
using OutputPiece = std::variant<std::string, std::shared_ptr<const SharedValue>>;

inline const std::string& bytes_of(const OutputPiece& piece) {
  const auto* own = std::get_if<std::string>(&piece);
  return own ? *own : std::get<std::shared_ptr<const SharedValue>>(piece)->bytes();
}

}  // namespace dslaunch::rendezvous
