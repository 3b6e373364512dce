// Page-locked blocks of host memory through which updated parameters reach the device: while one block is filled, the
// ones before it are copied, on a stream of the ring's own. Between CPU tensors copies happen at once. One thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace dslaunch::runtime::offload {

class UploadRing {
 public:
  static constexpr int64_t kNumBlocks = 4;

  // `block_bytes`: the most that next() is asked for.
  UploadRing(at::Device device, int64_t block_bytes);

  // A block of `numel` elements to be filled; waits until its last copy has been made.
  at::Tensor next(int64_t numel, at::ScalarType dtype);
  // Enqueues the copy of the block that next() returned last.
  void copy_to(const at::Tensor& destination);
  // Enqueues a copy of other host memory, which must not change before end().
  void copy(const at::Tensor& source, const at::Tensor& destination);
  // The end of all copies so far; null on the host.
  std::shared_ptr<c10::Event> end() const;

 private:
  struct Block {
    at::Tensor bytes;
    std::shared_ptr<c10::Event> copied;  // null: free
  };

  const at::Device device_;
  std::optional<c10::Stream> stream_;  // empty on the host
  std::array<Block, kNumBlocks> blocks_;
  size_t current_ = 0;
  at::Tensor filled_;
};

}  // namespace dslaunch::runtime::offload
