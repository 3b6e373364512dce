#include "runtime/checkpoint/piece_values.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace dslaunch::runtime {

PieceValues::PieceValues(at::Tensor values) : numel_(values.numel()), dtype_(values.scalar_type()) {
  DSL_CHECK(values.dim() == 1, "a piece is one-dimensional");
  read_ = [values = std::move(values)](int64_t begin, int64_t count) { return values.narrow(0, begin, count); };
}

PieceValues::PieceValues(int64_t numel, at::ScalarType dtype, ReadBlock read)
    : numel_(numel), dtype_(dtype), read_(std::move(read)) {}

at::Tensor PieceValues::read(int64_t begin, int64_t count) const {
  if (count == 0) return at::empty({0}, dtype_);
  at::Tensor block = read_(begin, count);
  DSL_CHECK(block.dim() == 1 && block.numel() == count && block.scalar_type() == dtype_ && block.is_contiguous() &&
                block.device().is_cpu(),
            "a block of a piece has the elements that were asked for");
  return block;
}

void PieceValues::for_each_block(const std::function<void(const at::Tensor& block)>& take) const {
  const int64_t most = kPieceBlockBytes / static_cast<int64_t>(c10::elementSize(dtype_));
  for (int64_t begin = 0; begin == 0 || begin < numel_; begin += most) {
    take(read(begin, std::min(most, numel_ - begin)));
  }
}

}  // namespace dslaunch::runtime
