#include "runtime/state/mask_minimum.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace dslaunch::runtime {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

double lowest_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? -65504.0 : -3.3895313892515355e38;
}

}  // namespace

bool is_half(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16;
}

double fitted(double value, at::ScalarType dtype) {
  if (!is_half(dtype) || !std::isfinite(value)) return value;
  const double substitute = lowest_of(dtype) / 2;
  if (value < lowest_of(dtype)) return substitute;
  return value >= kLargest ? -substitute : value;
}

at::Tensor fitted(const at::Tensor& value, at::ScalarType dtype) {
  if (!is_half(dtype) || !value.is_floating_point() || value.element_size() < 4 || value.numel() == 0 ||
      !value.is_non_overlapping_and_dense()) {
    return value;
  }
  const double substitute = lowest_of(dtype) / 2;
  const at::Tensor too_low = value.lt(lowest_of(dtype)).logical_and_(value.isfinite());
  const at::Tensor too_high = value.ge(kLargest).logical_and_(value.isfinite());
  if (!too_low.any().item<bool>() && !too_high.any().item<bool>()) return value;
  return value.masked_fill(too_low, substitute).masked_fill_(too_high, -substitute);
}

}  // namespace dslaunch::runtime
