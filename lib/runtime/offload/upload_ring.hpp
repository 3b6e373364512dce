// Page-locked blocks of host memory through which updated parameters reach the device, or a file: while one block is
// filled, the ones before it are copied, on a stream of the ring's own, or written. Between CPU tensors copies happen
// at once. One thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dslaunch::runtime::offload {

class UploadRing {
 public:
  static constexpr int64_t kNumBlocks = 4;
  // For chunks of so many elements in fp32; whole pages.
  static std::vector<at::Tensor> allocate_blocks(at::Device device, int64_t chunk_numel);
  // Bytes of these blocks.
  static int64_t memory(int64_t chunk_numel);

  UploadRing(at::Device device, const std::vector<at::Tensor>& blocks);
  // Waits for writes that have begun.
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // A block of `numel` elements to be filled; waits until its last contents are copied or written. Throws what a write
  // came to.
  at::Tensor next(int64_t numel, at::ScalarType dtype);
  // The whole pages of that block which hold the elements from their front.
  std::span<std::byte> filled_pages() const;
  // Enqueues the copy of the block that next() returned last.
  void copy_to(const at::Tensor& destination);
  // A write of it has begun, for whose end `wait` waits.
  void is_written_by(std::function<void()> wait) { blocks_[current_].wait_until_written = std::move(wait); }
  // Returns when all writes have ended. Throws what one came to.
  void finish_writes();
  // Enqueues a copy of other host memory, which must not change before end().
  void copy(const at::Tensor& source, const at::Tensor& destination);
  // The end of all copies so far; null on the host.
  std::shared_ptr<c10::Event> end() const;

 private:
  struct Block {
    at::Tensor bytes;
    std::shared_ptr<c10::Event> copied = {};        // null: free
    std::function<void()> wait_until_written = {};  // empty: free
  };

  const at::Device device_;
  std::optional<c10::Stream> stream_;  // empty on the host
  std::vector<Block> blocks_;
  size_t current_ = 0;
  at::Tensor filled_;
};

}  // namespace dslaunch::runtime::offload
