// The floating-point operations of one call of an operator, from the shapes of its arguments by DeepSpeed's formulas.
// An operator without a formula costs nothing itself; the operators that it calls may have one. Backward operators
// cost what they compute. Pure.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::runtime::model::operators {

struct OperatorCost {
  int64_t flops = 0;
  int64_t macs = 0;  // multiply-accumulates: of GEMMs, convolutions and attention
};

using Arguments = c10::ArrayRef<const c10::IValue>;
using FlopFormula = OperatorCost (*)(Arguments);

// `name`: "aten::linear". Empty for an operator without a formula. Unexpected arguments cost 0.
std::optional<OperatorCost> operator_cost(std::string_view name, Arguments arguments);

// The formulas. Those of backward operators: `_backward`.
OperatorCost matmul_cost(Arguments arguments);
OperatorCost linear_cost(Arguments arguments);
OperatorCost addmm_cost(Arguments arguments);
OperatorCost attention_cost(Arguments arguments);
OperatorCost attention_backward_cost(Arguments arguments);
OperatorCost plain_convolution_cost(Arguments arguments);
OperatorCost transposed_convolution_cost(Arguments arguments);
OperatorCost any_convolution_cost(Arguments arguments);
OperatorCost convolution_backward_cost(Arguments arguments);
OperatorCost recurrent_cost(Arguments arguments);
OperatorCost recurrent_backward_cost(Arguments arguments);
OperatorCost elementwise_cost(Arguments arguments);
OperatorCost batch_norm_cost(Arguments arguments);
OperatorCost instance_norm_cost(Arguments arguments);
OperatorCost layer_norm_cost(Arguments arguments);
OperatorCost upsample_cost(Arguments arguments);

}  // namespace dslaunch::runtime::model::operators
