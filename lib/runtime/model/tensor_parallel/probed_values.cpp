#include "runtime/model/tensor_parallel/probed_values.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/hash.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

constexpr int64_t kRandomBlock = 1 << 16;
// Blocks stay in the caches of a CPU; on GPUs few of them keep it busy.
constexpr int64_t kBlockOnCpu = 1 << 16, kBlockOnDevice = 1 << 24;

// Of 32 bits, which compilers compute for several elements at a time: random bits of a counter.
constexpr uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

// Calls visit(found, expected) with blocks of rows. `found` may be undefined.
template <class Visit>
void for_blocks(const at::Tensor& found, const at::Tensor& expected, const Visit& visit) {
  if (expected.numel() == 0) return;
  if (expected.dim() == 0) return visit(found, expected);
  const int64_t block = expected.is_cpu() ? kBlockOnCpu : kBlockOnDevice;
  const int64_t rows = expected.size(0), step = std::max<int64_t>(1, block / (expected.numel() / rows));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    visit(found.defined() ? found.narrow(0, begin, count) : found, expected.narrow(0, begin, count));
  }
}

double finite_or(double value, const at::Tensor& block) {
  return std::isfinite(value) ? value : block.nan_to_num(0, 0, 0).abs().max().item<double>();
}

double apart_in_block(const at::Tensor& a, const at::Tensor& b) {
  const double apart = (a - b).abs_().max().item<double>();
  if (std::isfinite(apart)) return apart;
  const at::Tensor is_alike = a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan()));
  return at::where(is_alike, 0.0, a - b).abs_().nan_to_num_(INFINITY, INFINITY).max().item<double>();
}

}  // namespace

at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, double least, double most) {
  const at::Tensor out = at::empty(sizes, at::kFloat);
  auto* const elements = out.data_ptr<float>();
  const int64_t count = out.numel();
  const auto scale = static_cast<float>((most - least) / (1 << 24)), shift = static_cast<float>(least);
  at::parallel_for(0, (count + kRandomBlock - 1) / kRandomBlock, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const auto of_block = static_cast<uint32_t>(mix64(mix64(seed) + static_cast<uint64_t>(block)));
      float* const begin = elements + block * kRandomBlock;
      const auto length = static_cast<uint32_t>(std::min(kRandomBlock, count - block * kRandomBlock));
      for (uint32_t i = 0; i < length; ++i) {
        begin[i] = shift + scale * static_cast<float>(static_cast<int32_t>(mix32(of_block + i) >> 8));
      }
    }
  });
  return out;
}

Distance distance_between(const at::Tensor& found, const at::Tensor& expected) {
  if (!expected.defined()) return {largest_of(found), 0};
  if (found.defined() && found.sizes() != expected.sizes()) return {INFINITY, largest_of(expected)};
  const c10::NoGradGuard no_grad;
  Distance out;
  for_blocks(found, expected, [&](const at::Tensor& own, const at::Tensor& other) {
    const at::Tensor b = other.to(at::kFloat);
    const double largest = finite_or(b.abs().max().item<double>(), b);
    out.largest = std::max(out.largest, largest);
    out.apart = std::max(out.apart, own.defined() ? apart_in_block(own.to(at::kFloat), b) : largest);
  });
  return out;
}

double largest_of(const at::Tensor& tensor) {
  return tensor.defined() ? distance_between({}, tensor).largest : 0;
}

}  // namespace dslaunch::runtime::model::tensor_parallel
