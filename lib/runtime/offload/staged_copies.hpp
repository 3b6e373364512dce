// Copies between a device and host memory that is not page-locked, through a ring of page-locked blocks: the copy
// engine works on one block while threads of the rank copy others to or from their place. The driver does the same with
// small buffers and the one thread that issues the step.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/sharding/memory_transfers.hpp"
#include "runtime/state/thread_team.hpp"

namespace dslaunch::runtime::offload {

class StagedCopies final : public MemoryTransfers {
 public:
  // Host memory of the ring.
  static int64_t memory();

  // `check_peers`: called now and then while a copy is awaited; throws if a rank was lost, without which it never
  // arrives. May be empty.
  StagedCopies(at::Device device, int num_threads, std::function<void()> check_peers);

  void download(const at::Tensor& values, const at::Tensor& host) override;
  void upload(const at::Tensor& host, const at::Tensor& destination) override;
  void finish() override;

 private:
  struct Block {
    at::Tensor bytes;
    std::shared_ptr<c10::Event> copied;  // between device and block; null: nothing to wait for
    at::Tensor to;  // host memory that gets the block's content once it is copied; may be undefined
  };

  Block& next_block();
  // Blocks that have arrived, the oldest first.
  void empty_arrived();
  void empty(Block& block);
  void wait_until_free(Block& block);
  void copy(const at::Tensor& from, const at::Tensor& to);

  const at::Device device_;
  const std::function<void()> check_peers_;
  ThreadTeam team_;
  std::vector<Block> blocks_;
  size_t next_ = 0;  // the oldest
};

}  // namespace dslaunch::runtime::offload
