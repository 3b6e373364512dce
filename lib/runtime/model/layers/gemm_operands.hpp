// What the backwards of linear layers share, in bf16 and in fp8: a weight and where its gradient goes, the gradients of
// an output that was cut, sums of columns. Any thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/model/torchscript/units/weight_gemm.hpp"

namespace dslaunch::runtime::model::layers {

// A weight as the GEMM reads it. A parameter that the model transposes first stands itself, in the other layout.
struct Weight {
  at::Tensor tensor;
  units::WeightLayout layout = units::WeightLayout::kOutIn;
  std::optional<units::GatheredParameter> gathered = {};  // empty: it is not a unit's parameter itself
};
Weight weight_of(const at::Tensor& tensor, units::WeightLayout layout);

// Whether types, devices and sizes are those of a layer that we compute. `bias`: null: none.
bool fits(const at::Tensor& input, const Weight& weight, const at::Tensor* bias);

// Undefined if the unit's call has taken it. `may_write`: where it is summed; `postpones`: units::postpone_gemm().
at::Tensor weight_gradient(const units::WeightGemm& gemm, const at::Tensor& weight, bool may_write, bool postpones);

// Whether our kernel sums the bias's gradient: only if PyTorch would save the same tensors for backward.
bool has_bias_kernel(const at::Tensor& input, const at::Tensor* bias);

// rows [rows, columns] -> [columns]; by our kernel unless second-order gradients are wanted.
at::Tensor sum_columns(const at::Tensor& rows);

// Of the gradients of an output's pieces: that of the output, and its column sums if they are wanted.
struct Joined {
  at::Tensor rows, sums;
};
Joined join(const torch::autograd::variable_list& pieces, bool sums);

// `shape`: of the output, empty: as it is computed; `widths`: of its pieces along the last dim, empty: it stays whole.
torch::autograd::variable_list pieces_of(const at::Tensor& out, const std::vector<int64_t>& shape,
                                         const std::vector<int64_t>& widths);

}  // namespace dslaunch::runtime::model::layers
