#include "runtime/offload/staged_copies.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/offload/copy_event.hpp"
#include "runtime/offload/host_memory.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime::offload {
namespace {

constexpr int kNumBlocks = 8;
constexpr int64_t kBlockBytes = 8 << 20;
constexpr int64_t kCopyGrain = 1 << 20;  // bytes that a thread copies at a time

// Calls take(begin, count) for pieces of at most a block.
template <class Take>
void for_each_piece(const at::Tensor& values, const Take& take) {
  const int64_t most = kBlockBytes / static_cast<int64_t>(values.element_size());
  for (int64_t begin = 0; begin < values.numel(); begin += most) take(begin, std::min(most, values.numel() - begin));
}

at::Tensor part_of_block(const at::Tensor& bytes, const at::Tensor& like, int64_t count) {
  return bytes.narrow(0, 0, count * static_cast<int64_t>(like.element_size())).view(like.scalar_type());
}

}  // namespace

int64_t StagedCopies::memory() {
  return kNumBlocks * kBlockBytes;
}

StagedCopies::StagedCopies(at::Device device, int num_threads, std::function<void()> check_peers)
    : device_(device), check_peers_(std::move(check_peers)), team_(num_threads) {
  for (int i = 0; i < kNumBlocks; ++i)
    blocks_.push_back({page_locked_if_possible(kBlockBytes, at::kByte, device), {}, {}});
}

void StagedCopies::download(const at::Tensor& values, const at::Tensor& host) {
  for_each_piece(values, [&](int64_t begin, int64_t count) {
    Block& block = next_block();
    const at::Tensor staged = part_of_block(block.bytes, values, count);
    {
      const OffloadScope scope(kDownloadScope, staged.nbytes());
      staged.copy_(values.narrow(0, begin, count), /*non_blocking=*/true);
    }
    block.copied = record_current(device_);
    block.to = host.narrow(0, begin, count);
    empty_arrived();
  });
}

void StagedCopies::upload(const at::Tensor& host, const at::Tensor& destination) {
  for_each_piece(host, [&](int64_t begin, int64_t count) {
    Block& block = next_block();
    const at::Tensor staged = part_of_block(block.bytes, host, count);
    copy(host.narrow(0, begin, count), staged);
    {
      const OffloadScope scope(kUploadScope, staged.nbytes());
      destination.narrow(0, begin, count).copy_(staged, /*non_blocking=*/true);
    }
    block.copied = record_current(device_);
  });
}

void StagedCopies::finish() {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[(next_ + i) % blocks_.size()];
    if (block.to.defined()) wait_until_free(block);
  }
}

StagedCopies::Block& StagedCopies::next_block() {
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  wait_until_free(block);
  return block;
}

void StagedCopies::empty_arrived() {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[(next_ + i) % blocks_.size()];
    if (!block.to.defined()) continue;
    if (block.copied && !block.copied->query()) return;  // those after it go to the host in its order
    empty(block);
  }
}

void StagedCopies::empty(Block& block) {
  const at::Tensor to = std::exchange(block.to, at::Tensor());
  copy(part_of_block(block.bytes, to, to.numel()), to);
}

void StagedCopies::wait_until_free(Block& block) {
  wait_for_copy(block.copied, check_peers_);
  block.copied = nullptr;
  if (block.to.defined()) empty(block);
}

void StagedCopies::copy(const at::Tensor& from, const at::Tensor& to) {
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  team_.run(static_cast<int64_t>(from.nbytes()), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace dslaunch::runtime::offload
