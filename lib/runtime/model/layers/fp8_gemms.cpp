#include "runtime/model/layers/fp8_gemms.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using config::Fp8Recipe;
using device::Fp8Scale;
using units::WeightLayout;

constexpr char kKept[] = "fp8";

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
at::Tensor Fp8Gemms::output(const device::Fp8Matrix& input, const at::Tensor& weight, WeightLayout layout,
                            const std::optional<at::Tensor>& bias) const {
  const device::Fp8Cast cast{.plain = scale(), .power_of_two = recipe_ != Fp8Recipe::kTensorwise};
  const at::Tensor out_in = layout == WeightLayout::kOutIn ? weight : weight.t();
  return device::multiply({input, device::to_fp8(out_in, cast).plain, bias, /*fast=*/true});
}

at::Tensor Fp8Gemms::input_gradient(const device::Fp8Matrix& upstream, const at::Tensor& weight,
                                    WeightLayout layout) const {
  const device::Fp8Cast cast{.plain = has_weight_gradient() ? scale() : Fp8Scale::kOfTensor,
                             .power_of_two = recipe_ != Fp8Recipe::kTensorwise};
  const at::Tensor in_out = layout == WeightLayout::kOutIn ? weight.t() : weight;
  return device::multiply({upstream, device::to_fp8(in_out, cast).plain});
}

void keep_fp8(torch::autograd::AutogradContext& context, Fp8Recipe recipe) {
  context.saved_data[kKept] = static_cast<int64_t>(recipe);
}

std::optional<Fp8Gemms> kept_fp8(const torch::autograd::AutogradContext& context) {
  const auto found = context.saved_data.find(kKept);
  if (found == context.saved_data.end()) return std::nullopt;
  return Fp8Gemms(static_cast<Fp8Recipe>(found->second.toInt()));
}

}  // namespace dslaunch::runtime::model::layers
