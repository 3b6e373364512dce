#include "runtime/offload/upload_ring.hpp"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "base/error.hpp"
#include "runtime/offload/host_memory.hpp"
#include "runtime/offload/paged_file.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime::offload {

std::vector<at::Tensor> UploadRing::allocate_blocks(at::Device device, int64_t chunk_numel) {
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < kNumBlocks; ++i) {
    out.push_back(page_locked_if_possible(memory(chunk_numel) / kNumBlocks, at::kByte, device));
  }
  return out;
}

int64_t UploadRing::memory(int64_t chunk_numel) {
  return kNumBlocks * pages(chunk_numel * static_cast<int64_t>(sizeof(float)));
}

UploadRing::UploadRing(at::Device device, const std::vector<at::Tensor>& blocks) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  for (const auto& bytes : blocks) blocks_.push_back({bytes});
}

UploadRing::~UploadRing() {
  for (Block& block : blocks_) {
    try {
      if (block.wait_until_written) block.wait_until_written();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the run ends for another reason
    }
  }
}

at::Tensor UploadRing::next(int64_t numel, at::ScalarType dtype) {
  current_ = (current_ + 1) % blocks_.size();
  Block& block = blocks_[current_];
  if (block.copied) block.copied->synchronize();
  if (block.wait_until_written) std::exchange(block.wait_until_written, {})();
  filled_ = block.bytes.narrow(0, 0, numel * static_cast<int64_t>(c10::elementSize(dtype))).view(dtype);
  return filled_;
}

std::span<std::byte> UploadRing::filled_pages() const {
  const at::Tensor& bytes = blocks_[current_].bytes;
  return {static_cast<std::byte*>(bytes.data_ptr()),
          static_cast<size_t>(pages(static_cast<int64_t>(filled_.nbytes())))};
}

void UploadRing::finish_writes() {
  for (Block& block : blocks_) {
    if (block.wait_until_written) std::exchange(block.wait_until_written, {})();
  }
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
