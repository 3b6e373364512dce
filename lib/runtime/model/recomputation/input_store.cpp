#include "runtime/model/recomputation/input_store.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime::model::recomputation {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, of a piece of the buffer

int64_t aligned_bytes(const at::Tensor& tensor) {
  return (static_cast<int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
}

bool can_move(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_quantized();
}

}  // namespace

// Counts the pieces that were meant for the buffer: when the last piece is freed, the buffer is empty again.
class InputStore::Piece {
 public:
  explicit Piece(std::shared_ptr<InputStore> store) : store_(std::move(store)) { store_->num_pieces_ += 1; }
  ~Piece() {
    store_->num_pieces_ -= 1;
    if (store_->num_pieces_ == 0) store_->used_bytes_ = 0;
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

 private:
  std::shared_ptr<InputStore> store_;
};

// An alias of the tensor itself: it shares the version counter, which reveals in-place changes.
class InputStore::Alias : public InputStore::Stored {
 public:
  Alias(const at::Tensor& tensor, std::unique_ptr<Piece> piece)
      : piece_(std::move(piece)), tensor_(tensor.detach()), version_(tensor_._version()) {}
  at::Tensor get() const override { return tensor_; }
  bool is_intact() const override { return static_cast<int64_t>(tensor_._version()) == version_; }

 private:
  std::unique_ptr<Piece> piece_;
  at::Tensor tensor_;
  int64_t version_;
};

class InputStore::Copy : public InputStore::Stored {
 public:
  Copy(const at::Tensor& tensor, at::Tensor copy, std::unique_ptr<Piece> piece)
      : piece_(std::move(piece)), device_(tensor.device()), copy_(std::move(copy)) {
    copy_.copy_(tensor.detach(), /*non_blocking=*/true);
  }
  at::Tensor get() const override { return copy_.device() == device_ ? copy_ : copy_.to(device_, true); }

 private:
  std::unique_ptr<Piece> piece_;
  at::Device device_;
  at::Tensor copy_;
};

// This rank's part of a tensor in the order of its memory; equally long on all ranks.
class InputStore::Part : public InputStore::Stored {
 public:
  Part(std::shared_ptr<InputStore> store, const at::Tensor& tensor)
      : store_(std::move(store)),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        kept_(store_->keep(own_part(tensor), /*is_activation=*/true)) {}

  at::Tensor get() const override {
    const at::Tensor all = store_->ranks_.stack(kept_->get());
    return all.view({all.numel()}).as_strided(sizes_, strides_);
  }

 private:
  at::Tensor own_part(const at::Tensor& tensor) const {
    const auto& ranks = store_->ranks_;
    const at::Tensor flat = tensor.detach().as_strided({tensor.numel()}, {1});
    const int64_t length = (flat.numel() + ranks.size - 1) / ranks.size;
    const int64_t begin = std::min(flat.numel(), ranks.rank * length);
    at::Tensor out = at::zeros({length}, flat.options());
    const at::Tensor own = flat.narrow(0, begin, std::min(length, flat.numel() - begin));
    out.narrow(0, 0, own.numel()).copy_(own);
    return out;
  }

  const std::shared_ptr<InputStore> store_;
  const std::vector<int64_t> sizes_, strides_;
  const std::unique_ptr<Stored> kept_;
};

std::unique_ptr<InputStore::Stored> InputStore::save(const at::Tensor& tensor, bool is_activation) {
  if (!is_activation || ranks_.size == 1 || !can_move(tensor)) return keep(tensor, is_activation);
  at::NoGradGuard no_grad;
  return std::make_unique<Part>(shared_from_this(), tensor);
}

std::unique_ptr<InputStore::Stored> InputStore::keep(const at::Tensor& tensor, bool is_activation) {
  const bool leaves_device = on_host_ && !tensor.is_cpu();
  if (!is_activation || !can_move(tensor) || (!leaves_device && !in_one_buffer_)) {
    return std::make_unique<Alias>(tensor, nullptr);
  }
  at::NoGradGuard no_grad;
  at::Tensor copy = in_one_buffer_ ? allocate_in_buffer(tensor) : at::Tensor();
  auto piece = in_one_buffer_ ? std::make_unique<Piece>(shared_from_this()) : nullptr;
  if (!copy.defined() && !leaves_device) return std::make_unique<Alias>(tensor, std::move(piece));
  if (!copy.defined()) copy = pinned_if_possible(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  return std::make_unique<Copy>(tensor, std::move(copy), std::move(piece));
}

// The first forward pass determines the size; the buffer is allocated, or enlarged, while it is empty.
at::Tensor InputStore::allocate_in_buffer(const at::Tensor& tensor) {
  if (num_pieces_ == 0 && buffer_bytes() < largest_bytes_) {
    const bool on_host = on_host_ && !tensor.is_cpu();
    buffer_ = on_host ? pinned_if_possible({largest_bytes_}, at::kByte)
                      : at::empty({largest_bytes_}, tensor.options().dtype(at::kByte));
    used_bytes_ = 0;
  }
  const int64_t begin = used_bytes_;
  used_bytes_ += aligned_bytes(tensor);
  largest_bytes_ = std::max(largest_bytes_, used_bytes_);
  if (used_bytes_ > buffer_bytes()) return {};
  return buffer_.narrow(0, begin, static_cast<int64_t>(tensor.nbytes()))
      .view(tensor.scalar_type())
      .as_strided(tensor.sizes(), tensor.strides());
}

}  // namespace dslaunch::runtime::model::recomputation
