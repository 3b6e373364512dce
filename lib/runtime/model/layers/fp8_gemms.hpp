// The three GEMMs of a linear layer in fp8, by torchao's recipes (docs/precision.md): which operand is rounded to which
// type, with which scales. Not differentiable; any thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "config/job_config.hpp"
#include "runtime/device/fp8.hpp"
#include "runtime/model/torchscript/units/weight_gemm.hpp"

namespace dslaunch::runtime::model::layers {

class Fp8Gemms {
 public:
  explicit Fp8Gemms(config::Fp8Recipe recipe) : recipe_(recipe) {}

  // False: the gradient of the weight is that of the operands in bf16.
  bool has_weight_gradient() const { return recipe_ != config::Fp8Recipe::kRowwiseWithGwHp; }

  // `rows`: [rows, in]. For the output, and if `for_weight` for the weight's gradient.
  device::Fp8Pair input(const at::Tensor& rows, bool for_weight) const;
  // `rows`: [rows, out], the gradient of the output. For the input's gradient, and for the weight's.
  device::Fp8Pair upstream(const at::Tensor& rows, bool for_input, bool for_weight) const;

  // [rows, out] and [rows, in].
  at::Tensor output(const device::Fp8Matrix& input, const at::Tensor& weight, units::WeightLayout layout,
                    const std::optional<at::Tensor>& bias) const;
  at::Tensor input_gradient(const device::Fp8Matrix& upstream, const at::Tensor& weight,
                            units::WeightLayout layout) const;

 private:
  device::Fp8Scale scale() const;

  config::Fp8Recipe recipe_;
};

// Between a forward and its backward; nothing is kept of a layer in bf16.
void keep_fp8(torch::autograd::AutogradContext& context, config::Fp8Recipe recipe);
std::optional<Fp8Gemms> kept_fp8(const torch::autograd::AutogradContext& context);

}  // namespace dslaunch::runtime::model::layers
