#include "runtime/model/layers/fp8_gemms.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using config::Fp8Recipe;
using device::Fp8Scale;
using units::WeightLayout;

}  // namespace

Fp8Scale Fp8Gemms::scale() const {
  return recipe_ == Fp8Recipe::kTensorwise ? Fp8Scale::kOfTensor : Fp8Scale::kOfRow;
}

device::Fp8Pair Fp8Gemms::input(const at::Tensor& rows, bool for_weight) const {
  device::Fp8Cast cast{.plain = scale(), .power_of_two = recipe_ != Fp8Recipe::kTensorwise};
  if (for_weight && has_weight_gradient()) cast.transposed = scale();
  return device::to_fp8(rows, cast);
}

device::Fp8Pair Fp8Gemms::upstream(const at::Tensor& rows, bool for_input, bool for_weight) const {
  const bool is_tensorwise = recipe_ == Fp8Recipe::kTensorwise;
  device::Fp8Cast cast{.type = is_tensorwise ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn, .power_of_two = !is_tensorwise};
  if (for_input) cast.plain = scale();
  if (for_weight && has_weight_gradient()) cast.transposed = scale();
  return device::to_fp8(rows, cast);
}

// The weight's rows in the cast are those that the GEMM does not sum over.
device::Fp8Pair Fp8Gemms::weight(const at::Tensor& weight, WeightLayout layout, bool for_output, bool for_input) const {
  device::Fp8Cast cast{.power_of_two = recipe_ != Fp8Recipe::kTensorwise};
  if (for_output) cast.plain = scale();
  if (for_input) cast.transposed = has_weight_gradient() ? scale() : Fp8Scale::kOfTensor;
  return device::to_fp8(layout == WeightLayout::kOutIn ? weight : weight.t(), cast);
}

}  // namespace dslaunch::runtime::model::layers
