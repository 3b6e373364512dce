#include "runtime/optim/gradient_norm.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/optim/device_functions.hpp"
#include "runtime/optim/host_update.hpp"
#include "runtime/state/parallel_ranges.hpp"
#include "runtime/state/state_arrays.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kBlock = kSquaresBlock;   // elements per partial sum
constexpr int64_t kBlocksPerTask = 4;       // fewer are not worth a thread
constexpr int64_t kWidened = 128 * kBlock;  // elements of 16 bits that are in fp32 at a time

void append_block_sums(const at::Tensor& values, std::vector<double>& sums) {
  const float* data = values.const_data_ptr<float>();
  const int64_t count = values.numel();
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  const size_t first = sums.size();
  sums.resize(first + static_cast<size_t>(num_blocks));
  double* out = sums.data() + first;
  const auto set = host::best_instruction_set();
  parallel_ranges(num_blocks, kBlocksPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t offset = block * kBlock;
      out[block] = host::sum_of_squares(data + offset, std::min(kBlock, count - offset), set);
    }
  });
}

// Adds neighboring sums until one is left.
double add_pairwise(std::vector<double> sums) {
  for (size_t count = sums.size(); count > 1; count = (count + 1) / 2) {
    for (size_t i = 0; i < count / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    if (count % 2 == 1) sums[count / 2] = sums[count - 1];
  }
  return sums.empty() ? 0.0 : sums[0];
}

}  // namespace

at::Tensor sum_of_squares(at::TensorList values) {
  DSL_CHECK(!values.empty(), "a norm over no tensors has no device");
  for (const at::Tensor& tensor : values) {
    DSL_CHECK(is_gradient_type(tensor.scalar_type()) && tensor.is_contiguous(),
              "a norm needs contiguous tensors in fp32, bf16 or fp16");
    DSL_CHECK(tensor.device() == values[0].device(), "a norm needs all tensors on one device");
  }
  if (values[0].is_cuda()) return device::module().optim.sum_of_squares(values);
  HostSquares squares;
  for (const at::Tensor& tensor : values) squares.add(tensor);
  return squares.sum();
}

void HostSquares::add(const at::Tensor& values) {
  if (values.scalar_type() == at::kFloat) return append_block_sums(values, sums_);
  for (int64_t begin = 0; begin < values.numel(); begin += kWidened) {
    const int64_t count = std::min(kWidened, values.numel() - begin);
    append_block_sums(values.narrow(0, begin, count).to(at::kFloat), sums_);
  }
}

at::Tensor HostSquares::sum() const {
  return at::scalar_tensor(add_pairwise(sums_), at::kDouble);
}

ClippedNorm clip_by_norm(const at::Tensor& sum_of_squares, double max_norm, double gradient_scale) {
  DSL_CHECK(sum_of_squares.dim() == 0 && sum_of_squares.scalar_type() == at::kDouble,
            "clipping needs a 0-dim fp64 sum");
  DSL_CHECK(max_norm >= 0.0, "clipping needs a norm of 0 or more");
  if (sum_of_squares.is_cuda()) return device::module().optim.clip(sum_of_squares, max_norm, gradient_scale);
  const double norm = std::sqrt(*sum_of_squares.const_data_ptr<double>()) * gradient_scale;
  const double ratio = max_norm > 0.0 ? (norm + 1e-6) / max_norm : 0.0;
  const double factor = ratio > 1.0 ? gradient_scale / ratio : gradient_scale;
  return {at::scalar_tensor(norm, at::kDouble), at::scalar_tensor(factor, at::kFloat)};
}

}  // namespace dslaunch::runtime::optim
