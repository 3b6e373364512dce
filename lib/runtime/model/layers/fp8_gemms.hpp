// The three GEMMs of a linear layer in fp8, by torchao's recipes (docs/precision.md): which operand is rounded to which
// type, with which scales. Not differentiable; any thread.
#pragma once
#include <ATen/core/Tensor.h>

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

  // Plain: as the output's GEMM reads it; transposed: as that of the input's gradient does.
  device::Fp8Pair weight(const at::Tensor& weight, units::WeightLayout layout, bool for_output, bool for_input) const;

 private:
  device::Fp8Scale scale() const;

  config::Fp8Recipe recipe_;
};

}  // namespace dslaunch::runtime::model::layers
