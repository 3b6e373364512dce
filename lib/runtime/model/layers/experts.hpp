// The rows of a mixture of experts: tokens in the order of the experts that they are sent to, and back, by kernels that
// read the experts' counts on the device; and what puts them into graphs (docs/kernels.md). On the CPU, and where the
// kernels do not apply, PyTorch's operators compute the same. Any thread; twice differentiable.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>

namespace dslaunch::runtime::model::layers {

// Entry e is a choice of token e / choices. int32.
struct ExpertOrder {
  at::Tensor entry_of_row;  // by expert, those of an expert in their order; last the entries of no expert
  at::Tensor row_of_entry;  // -1: of no expert
  at::Tensor ends;          // [experts]: the row after the expert's last one, as aten::_grouped_mm reads it
};

// `experts`: int64 [entries]. An entry whose number no expert has is of none.
ExpertOrder expert_order(const at::Tensor& experts, int64_t num_experts);

// tokens [tokens, columns] -> [entries, columns]. Rows of no expert hold anything.
at::Tensor expert_rows(const at::Tensor& tokens, const ExpertOrder& order, int64_t choices);

// rows [entries, columns], weights [entries] in their type or fp32, or undefined: all are 1 -> [tokens, columns], the
// sums of each token's rows times their weights, in `dtype`. Entries of no expert count nothing, and their rows'
// gradient holds anything. The kernel rounds once, to the rows' type.
at::Tensor expert_sum(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order, int64_t choices,
                      at::ScalarType dtype);

// What transformers' experts do before and after their grouped GEMMs (grouped_mm_experts_forward, with masks for
// entries of no expert or without): sort, count, gather, weigh, put back, add up. Returns the number of layers changed.
int order_experts(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
