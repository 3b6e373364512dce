#include "runtime/model/torchscript/units/weight_gemm.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime::model::units {

at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

std::pair<at::Tensor, at::Tensor> WeightGemm::matrices() const {
  if (layout_ == WeightLayout::kOutIn) return {upstream_.t(), as_rows(input_)};
  return {as_rows(input_).t(), upstream_};
}

device::Fp8Gemm WeightGemm::in_layout(device::Fp8Gemm input_and_upstream, WeightLayout layout) {
  if (layout == WeightLayout::kOutIn) std::swap(input_and_upstream.left, input_and_upstream.right);
  return input_and_upstream;
}

WeightGemm WeightGemm::detached() const {
  WeightGemm out = *this;
  if (out.input_.defined()) out.input_ = out.input_.detach();
  return out;
}

at::Tensor WeightGemm::compute() const {
  if (in_fp8_) return device::multiply(*in_fp8_, gemms_);
  const auto [left, right] = matrices();
  if (at::GradMode::is_enabled() || !gemms_ || !device::is_tunable({left, right})) return left.mm(right);
  at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  device::multiply({left, right}, out, gemms_);
  return out;
}

void WeightGemm::add_to(const GradientDestination& destination) const {
  if (in_fp8_) return device::multiply(*in_fp8_, destination.sum, /*adds=*/!destination.is_empty, gemms_);
  const at::NoGradGuard no_grad;
  const auto [left, right] = matrices();
  device::multiply({left, right}, destination.sum, gemms_, /*adds=*/!destination.is_empty);
}

}  // namespace dslaunch::runtime::model::units
