#include "runtime/checkpoint/host_staging_buffers.hpp"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime {
namespace {

// The pinned memory allocator rounds up to powers of two, so block sizes are powers of two. Each is twice the previous
// one.
constexpr int64_t kFirstBlockBytes = 1 << 20, kLargestBlockBytes = 256 << 20, kAlignment = 64;

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

HostStagingBuffers::HostStagingBuffers(at::Device device) : device_(device) {
  if (!device_.is_cpu()) {
    side_stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  }
}

HostStagingBuffers::~HostStagingBuffers() {
  wait_until_prepared();
}

void HostStagingBuffers::prepare(std::vector<int64_t> sizes) {
  if (!side_stream_) return;
  wait_until_prepared();
  preparing_ = std::thread([this, sizes = std::move(sizes)] {
    try {
      const c10::DeviceGuard on_device(device_);
      for (int64_t size : sizes) allocate(size);
    } catch (const std::exception&) {  // out of memory, or a broken device: the save retries, and reports it
    }
  });
}

void HostStagingBuffers::wait_until_prepared() {
  if (preparing_.joinable()) preparing_.join();
}

void HostStagingBuffers::begin() {
  wait_until_prepared();
  for (auto& block : blocks_) block.used = 0;
  num_bytes_ = 0;
  if (!side_stream_) return;
  c10::Event ready(device_.type());
  ready.record(current_stream(device_));
  ready.block(*side_stream_);
}

at::Tensor HostStagingBuffers::take(const at::Tensor& values) {
  const at::Tensor flat = values.detach().reshape({-1});
  if (!side_stream_ || flat.is_cpu()) return copy_of(flat);
  const c10::StreamGuard on_side(*side_stream_);
  return copy_of(flat);
}

at::Tensor HostStagingBuffers::take_before_forward(const at::Tensor& values) {
  return copy_of(values.detach().reshape({-1}));
}

void HostStagingBuffers::end() {
  if (!side_stream_) return;
  c10::Event taken(device_.type());  // copies on the current stream
  taken.record(current_stream(device_));
  taken.block(*side_stream_);
  arrived_.emplace(device_.type());
  arrived_->record(*side_stream_);
}

void HostStagingBuffers::block_current_stream() {
  if (arrived_) arrived_->block(current_stream(device_));
}

void HostStagingBuffers::wait_until_arrived() const {
  if (arrived_) arrived_->synchronize();
}

at::Tensor HostStagingBuffers::allocate(int64_t num_bytes) {
  const int64_t needed = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto block =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.bytes.numel() - b.used >= needed; });
  if (block == blocks_.end()) {
    const int64_t next =
        blocks_.empty() ? kFirstBlockBytes : std::min(2 * blocks_.back().bytes.numel(), kLargestBlockBytes);
    const int64_t size = std::max(needed, next);
    blocks_.push_back({side_stream_ ? pinned_if_possible(size, at::kByte) : at::empty({size}, at::kByte), 0});
    block = blocks_.end() - 1;
  }
  at::Tensor out = block->bytes.narrow(0, block->used, num_bytes);
  block->used += needed;
  num_bytes_ += num_bytes;
  return out;
}

at::Tensor HostStagingBuffers::copy_of(const at::Tensor& flat) {
  at::Tensor out = allocate(flat.numel() * flat.element_size()).view(flat.scalar_type());
  out.copy_(flat, /*non_blocking=*/true);
  return out;
}

}  // namespace dslaunch::runtime
