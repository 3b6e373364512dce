#include "runtime/offload/upload_ring.hpp"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::offload {

UploadRing::UploadRing(at::Device device, int64_t block_bytes) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  for (Block& block : blocks_) block.bytes = host_memory_for(device, {block_bytes}, at::kByte);
}

at::Tensor UploadRing::next(int64_t numel, at::ScalarType dtype) {
  current_ = (current_ + 1) % blocks_.size();
  Block& block = blocks_[current_];
  if (block.copied) block.copied->synchronize();
  filled_ = block.bytes.narrow(0, 0, numel * static_cast<int64_t>(c10::elementSize(dtype))).view(dtype);
  return filled_;
}

void UploadRing::copy_to(const at::Tensor& destination) {
  copy(filled_, destination);
  blocks_[current_].copied = end();
}

void UploadRing::copy(const at::Tensor& source, const at::Tensor& destination) {
  if (!stream_) {
    destination.copy_(source);
    return;
  }
  const c10::StreamGuard on_stream(*stream_);
  destination.copy_(source, /*non_blocking=*/true);
}

std::shared_ptr<c10::Event> UploadRing::end() const {
  if (!stream_) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(*stream_);
  return event;
}

}  // namespace dslaunch::runtime::offload
