// A queue that fails as it is told, in front of one that works.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "file_io/block_queue.hpp"

namespace dslaunch::test {

// For each block: empty: it passes; below 0: it ends with this errno, negated; above 0: only so many bytes are moved;
// 0: it ends without having moved any.
using Fault = std::function<std::optional<int64_t>(const file_io::Block&)>;

class FaultyQueue final : public file_io::BlockQueue {
 public:
  FaultyQueue(std::unique_ptr<file_io::BlockQueue> inner, Fault fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  int depth() const override { return inner_->depth(); }

  void push(const file_io::Block& block, uint64_t tag) override {
    const auto fault = fault_(block);
    if (fault && *fault <= 0) return ended_.push_back({tag, *fault});
    file_io::Block passed = block;
    if (fault) passed.bytes = std::min(passed.bytes, *fault);
    inner_->push(passed, tag);
  }

  file_io::BlockEnd pop() override {
    if (ended_.empty()) return inner_->pop();
    const file_io::BlockEnd end = ended_.front();
    ended_.pop_front();
    return end;
  }

 private:
  std::unique_ptr<file_io::BlockQueue> inner_;
  Fault fault_;
  std::deque<file_io::BlockEnd> ended_;
};

}  // namespace dslaunch::test
