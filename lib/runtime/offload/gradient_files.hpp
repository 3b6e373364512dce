// Gradients on their way to files: from where they were reduced into blocks of host memory, page-locked for a device,
// and from there into the file of the optimizer state, while backward goes on. The blocks go round: a write waits for
// the one before that used its block, so backward waits for the disk where that is the slower one. They hold about a
// unit of a large model, so that the disk is busy while the next one is computed.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/offload/state_file.hpp"
#include "runtime/sharding/gradient_store.hpp"

namespace dslaunch::runtime::offload {

class GradientFiles final : public GradientStore {
 public:
  static constexpr int kNumBlocks = 32;
  // Bytes of a block for sub-groups of so many elements.
  static int64_t block_bytes(int64_t sub_group_numel);
  // For StateFile's `staging`. Any thread.
  static std::vector<at::Tensor> allocate_blocks(const StateFileLayout& layout, at::Device device);

  // `file` has the blocks. `check_peers`: called now and then while a copy from the device is awaited; throws if a rank
  // was lost, without which it never arrives. May be empty.
  GradientFiles(std::shared_ptr<StateFile> file, at::Device device, std::function<void()> check_peers);

  void write(const StoredArrays& span, int area, const at::Tensor& values) override;
  void read(StoredArrays& span, int area, const at::Tensor& values) override;
  void finish() override;

 private:
  struct Block {
    at::Tensor bytes;
    std::shared_ptr<c10::Event> copied;              // between device and block; null: nothing to wait for
    std::function<PagedFile::Ticket()> begin_write;  // once it is copied; empty: nothing to write
    std::optional<PagedFile::Ticket> written;
  };

  Block& next_block();
  // Begins the writes of blocks that have arrived.
  void begin_writes();
  void wait_until_free(Block& block);
  void wait_until_copied(Block& block);
  int64_t piece_at(int64_t begin, int64_t numel, int64_t element_size) const;

  const std::shared_ptr<StateFile> file_;
  const at::Device device_;
  const std::function<void()> check_peers_;
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

}  // namespace dslaunch::runtime::offload
