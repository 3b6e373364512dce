// The floating-point operations of one call of an operator, from the shapes of its arguments by DeepSpeed's formulas.
// An operator without a formula costs nothing itself; the operators that it calls may have one. Backward operators
// cost what they compute. Pure.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::runtime {

struct OperatorCost {
  int64_t flops = 0;
  int64_t macs = 0;  // multiply-accumulates: of matrix products, convolutions and attention
};

// `name`: "aten::linear". Empty for an operator without a formula. Unexpected arguments cost 0.
std::optional<OperatorCost> operator_cost(std::string_view name, c10::ArrayRef<const c10::IValue> arguments);

// The arguments of an observed call: TorchScript's interpreter passes its whole stack, whose last values they are.
c10::ArrayRef<const c10::IValue> own_arguments(const at::RecordFunction& call);

}  // namespace dslaunch::runtime
