#include "runtime/model/units/weight_product.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime::model::units {

at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

std::pair<at::Tensor, at::Tensor> WeightProduct::matrices() const {
  if (layout_ == WeightLayout::kOutIn) return {upstream_.t(), as_rows(input_)};
  return {as_rows(input_).t(), upstream_};
}

at::Tensor WeightProduct::compute() const {
  const auto [left, right] = matrices();
  return left.mm(right);
}

void WeightProduct::add_to(const GradientDestination& destination) const {
  const at::NoGradGuard no_grad;
  const auto [left, right] = matrices();
  at::Tensor sum = destination.sum;
  const auto type = sum.scalar_type();
  const bool widens = type != factors();
  if (destination.is_empty) {
    widens ? at::mm_out(sum, left, right, type) : at::mm_out(sum, left, right);
  } else if (sum.is_cpu()) {
    sum.add_(left.mm(right));
  } else {
    widens ? at::addmm_out(sum, sum, left, right, type) : at::addmm_out(sum, sum, left, right);
  }
}

}  // namespace dslaunch::runtime::model::units
