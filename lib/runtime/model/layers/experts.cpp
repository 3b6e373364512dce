#include "runtime/model/layers/experts.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "runtime/device/device_module.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

ExpertOrder order_of_operators(const at::Tensor& experts, int64_t num_experts) {
  const at::Tensor is_of_none = experts.lt(0).logical_or_(experts.ge(num_experts));
  const auto [sorted, entries] =
      experts.masked_fill(is_of_none, num_experts).sort(std::optional<bool>(true), /*dim=*/0, /*descending=*/false);
  const at::Tensor numbers = at::arange(num_experts, experts.options());
  const at::Tensor rows = at::arange(experts.numel(), experts.options().dtype(at::kInt));
  at::Tensor row_of_entry = at::empty_like(rows).scatter_(0, entries, rows).masked_fill_(is_of_none, -1);
  return {entries.to(at::kInt), std::move(row_of_entry),
          at::searchsorted(sorted, numbers, /*out_int32=*/true, /*right=*/true)};
}

at::Tensor rows_of_operators(const at::Tensor& tokens, const ExpertOrder& order, int64_t choices) {
  return tokens.index_select(0, order.entry_of_row.div(choices, "floor"));
}

at::ScalarType wide_type(const at::Tensor& rows) {
  return rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor sum_of_operators(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order,
                            int64_t choices, at::ScalarType dtype) {
  const at::Tensor is_of_none = order.row_of_entry.lt(0);
  at::Tensor values = rows.index_select(0, order.row_of_entry.clamp_min(0)).to(wide_type(rows));
  values = values.masked_fill(is_of_none.unsqueeze(-1), 0);
  if (weights.defined()) values = values * weights.unsqueeze(-1);
  return values.view({-1, choices, rows.size(-1)}).sum(1).to(dtype);
}

bool has_kernel(const at::Tensor& matrix, int64_t choices) {
  return matrix.is_cuda() && is_kernel_type(matrix.scalar_type()) && matrix.dim() == 2 && matrix.numel() > 0 &&
         matrix.is_contiguous() && device::module().layers.expert_rows_fit(choices, {matrix});
}

at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order, int64_t choices,
                    at::ScalarType dtype) {
  const bool has_types = rows.scalar_type() == dtype &&
                         (!weights.defined() || weights.scalar_type() == at::kFloat || weights.scalar_type() == dtype);
  if (!has_types || !has_kernel(rows, choices)) return sum_of_operators(rows, weights, order, choices, dtype);
  at::Tensor out = at::empty({rows.size(0) / choices, rows.size(1)}, rows.options());
  device::module().layers.expert_sum(rows, weights, order.row_of_entry, choices, out);
  return out;
}

class TokenRows : public torch::autograd::Function<TokenRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens, const at::Tensor& entry_of_row,
                            const at::Tensor& row_of_entry, int64_t choices) {
    context->save_for_backward({entry_of_row, row_of_entry});
    context->saved_data["choices"] = choices;
    if (!has_kernel(tokens, choices)) return rows_of_operators(tokens, {entry_of_row, row_of_entry, {}}, choices);
    at::Tensor rows = at::empty({row_of_entry.numel(), tokens.size(1)}, tokens.options());
    device::module().layers.expert_rows(tokens, row_of_entry, choices, rows);
    return rows;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor of_rows = upstream[0].contiguous();
    const int64_t choices = context->saved_data["choices"].toInt();
    return {expert_sum(of_rows, {}, {saved[0], saved[1], {}}, choices, of_rows.scalar_type()), {}, {}, {}};
  }
};

class RowSum : public torch::autograd::Function<RowSum> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& weights,
                            const at::Tensor& entry_of_row, const at::Tensor& row_of_entry, int64_t choices,
                            at::ScalarType dtype) {
    context->save_for_backward({rows, weights, entry_of_row, row_of_entry});
    context->saved_data["choices"] = choices;
    return sum_rows(rows, weights, {entry_of_row, row_of_entry, {}}, choices, dtype);
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weights = saved[1];
    const ExpertOrder order{saved[2], saved[3], {}};
    const int64_t choices = context->saved_data["choices"].toInt();
    const at::Tensor of_tokens = upstream[0].contiguous();
    const bool has_types = of_tokens.scalar_type() == rows.scalar_type() &&
                           (weights.scalar_type() == at::kFloat || weights.scalar_type() == rows.scalar_type());
    if (at::GradMode::is_enabled() || !has_types || !has_kernel(rows, choices)) {
      return gradients_of_operators(of_tokens, rows, weights, order, choices);
    }
    at::Tensor of_rows = at::empty_like(rows), of_weights = at::empty_like(weights);
    device::module().layers.expert_sum_gradient(of_tokens, rows, weights, order.row_of_entry, choices, of_rows,
                                                of_weights);
    return {std::move(of_rows), std::move(of_weights), {}, {}, {}, {}};
  }

 private:
  static variable_list gradients_of_operators(const at::Tensor& of_tokens, const at::Tensor& rows,
                                              const at::Tensor& weights, const ExpertOrder& order, int64_t choices) {
    const at::Tensor of_entries = of_tokens.repeat_interleave(choices, 0).to(wide_type(rows));
    const at::Tensor is_of_none = order.row_of_entry.lt(0).unsqueeze(-1);
    const at::Tensor in_entries = rows.index_select(0, order.row_of_entry.clamp_min(0)).masked_fill(is_of_none, 0);
    const at::Tensor of_rows = (of_entries * weights.unsqueeze(-1)).index_select(0, order.entry_of_row);
    const at::Tensor of_weights = (of_entries * in_entries).sum(-1);
    return {of_rows.to(rows.scalar_type()), of_weights.to(weights.scalar_type()), {}, {}, {}, {}};
  }
};

}  // namespace

ExpertOrder expert_order(const at::Tensor& experts, int64_t num_experts) {
  const bool has_kernel = experts.is_cuda() && device::module().layers.expert_order_fits(experts.numel(), num_experts);
  if (!has_kernel) return order_of_operators(experts, num_experts);
  const auto options = experts.options().dtype(at::kInt);
  ExpertOrder out{at::empty({experts.numel()}, options), at::empty({experts.numel()}, options),
                  at::empty({num_experts}, options)};
  device::module().layers.expert_order(experts.contiguous(), out.entry_of_row, out.row_of_entry, out.ends);
  return out;
}

at::Tensor expert_rows(const at::Tensor& tokens, const ExpertOrder& order, int64_t choices) {
  return TokenRows::apply(tokens.contiguous(), order.entry_of_row, order.row_of_entry, choices);
}

at::Tensor expert_sum(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order, int64_t choices,
                      at::ScalarType dtype) {
  const at::Tensor dense = rows.contiguous();
  if (weights.defined()) {
    return RowSum::apply(dense, weights.contiguous(), order.entry_of_row, order.row_of_entry, choices, dtype);
  }
  // Of a gradient whose own gradient is wanted: PyTorch's operators are differentiable.
  const bool needs_gradient = at::GradMode::is_enabled() && rows.requires_grad();
  return needs_gradient ? sum_of_operators(dense, weights, order, choices, dtype)
                        : sum_rows(dense, weights, order, choices, dtype);
}

}  // namespace dslaunch::runtime::model::layers
