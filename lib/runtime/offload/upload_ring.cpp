#include "runtime/offload/upload_ring.hpp"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/offload/host_memory.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime::offload {

UploadRing::UploadRing(at::Device device, int64_t block_bytes) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  for (Block& block : blocks_) block.bytes = page_locked_if_possible(block_bytes, at::kByte, device);
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
  const c10::OptionalStreamGuard on_stream(stream_);
  const OffloadScope scope(kUploadScope, source.nbytes());
  destination.copy_(source, /*non_blocking=*/true);
}

std::shared_ptr<c10::Event> UploadRing::end() const {
  if (!stream_) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(*stream_);
  return event;
}

}  // namespace dslaunch::runtime::offload
