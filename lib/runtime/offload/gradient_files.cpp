#include "runtime/offload/gradient_files.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/offload/copy_event.hpp"
#include "runtime/offload/host_memory.hpp"
#include "runtime/state/offload_scopes.hpp"

namespace dslaunch::runtime::offload {
namespace {

constexpr int64_t kMaxBlockBytes = 8 << 20;

}  // namespace

int64_t GradientFiles::block_bytes(int64_t sub_group_numel) {
  return std::min(kMaxBlockBytes, sub_group_numel * static_cast<int64_t>(sizeof(float)));
}

std::vector<at::Tensor> GradientFiles::allocate_blocks(const StateFileLayout& layout, at::Device device) {
  std::vector<at::Tensor> out;
  for (int i = 0; i < kNumBlocks; ++i) {
    out.push_back(page_locked_if_possible(block_bytes(layout.sub_group_numel), at::kByte, device));
  }
  return out;
}

GradientFiles::GradientFiles(std::shared_ptr<StateFile> file, at::Device device, std::function<void()> check_peers)
    : file_(std::move(file)), device_(device), check_peers_(std::move(check_peers)) {
  for (const auto& bytes : file_->staging()) blocks_.push_back({bytes, {}, {}, {}});
}

// Up to the end of a block, of the span or of the sub-group.
int64_t GradientFiles::piece_at(int64_t begin, int64_t numel, int64_t element_size) const {
  const int64_t sub_group = file_->layout().sub_group_numel;
  return std::min({blocks_.front().bytes.numel() / element_size, numel - begin, sub_group - begin % sub_group});
}

void GradientFiles::write(const StoredArrays& span, int area, const at::Tensor& values) {
  const auto element_size = static_cast<int64_t>(values.element_size());
  for (int64_t begin = 0; begin < values.numel();) {
    const int64_t count = piece_at(begin, values.numel(), element_size);
    Block& block = next_block();
    const at::Tensor host = block.bytes.narrow(0, 0, count * element_size).view(values.scalar_type());
    {
      const OffloadScope scope(kDownloadScope, host.nbytes());
      host.copy_(values.narrow(0, begin, count), /*non_blocking=*/true);
    }
    block.copied = record_current(device_);
    const int64_t pages = (count * element_size + file_io::kDirectAlignment - 1) / file_io::kDirectAlignment;
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(block.bytes.const_data_ptr()),
                                           static_cast<size_t>(pages * file_io::kDirectAlignment));
    block.begin_write = [this, number = span.number(), area, begin, dtype = values.scalar_type(), bytes] {
      return file_->begin_write_area(number, area, begin, dtype, bytes);
    };
    begin_writes();
    begin += count;
  }
}

void GradientFiles::read(StoredArrays& span, int area, const at::Tensor& values) {
  finish();
  const auto element_size = static_cast<int64_t>(values.element_size());
  for (int64_t begin = 0; begin < values.numel();) {
    const int64_t count = piece_at(begin, values.numel(), element_size);
    Block& block = next_block();
    const at::Tensor host = block.bytes.narrow(0, 0, count * element_size).view(values.scalar_type());
    span.read_gradient(area, begin, host);
    values.narrow(0, begin, count).copy_(host, /*non_blocking=*/true);
    block.copied = record_current(device_);
    begin += count;
  }
}

void GradientFiles::finish() {
  for (size_t i = 0; i < blocks_.size(); ++i) wait_until_free(blocks_[(next_ + i) % blocks_.size()]);
}

GradientFiles::Block& GradientFiles::next_block() {
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  wait_until_free(block);
  return block;
}

void GradientFiles::begin_writes() {
  for (Block& block : blocks_) {
    if (!block.begin_write || (block.copied && !block.copied->query())) continue;
    block.copied = nullptr;
    block.written = std::exchange(block.begin_write, {})();
  }
}

void GradientFiles::wait_until_free(Block& block) {
  wait_until_copied(block);
  if (block.begin_write) block.written = std::exchange(block.begin_write, {})();
  if (block.written) file_->wait(*std::exchange(block.written, {}));
}

void GradientFiles::wait_until_copied(Block& block) {
  wait_for_copy(block.copied, check_peers_, [this] { begin_writes(); });
  block.copied = nullptr;
}

}  // namespace dslaunch::runtime::offload
