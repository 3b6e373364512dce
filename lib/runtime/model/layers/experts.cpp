#include "runtime/model/layers/experts.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <utility>

#include "runtime/device/device_module.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

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

// Sums in fp32 at least, and at least in the weights' type.
at::Tensor sum_of_operators(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order,
                            int64_t choices, at::ScalarType dtype) {
  const at::Tensor is_of_none = order.row_of_entry.lt(0);
  const auto wide = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor values = rows.index_select(0, order.row_of_entry.clamp_min(0)).to(wide);
  values = values.masked_fill(is_of_none.unsqueeze(-1), 0);
  if (weights.defined()) values = values * weights.unsqueeze(-1);
  return values.view({-1, choices, rows.size(-1)}).sum(1).to(dtype);
}

bool has_kernel(const at::Tensor& matrix, int64_t choices) {
  return matrix.is_cuda() && is_kernel_type(matrix.scalar_type()) && matrix.dim() == 2 && matrix.numel() > 0 &&
         matrix.is_contiguous() && device::module().layers.expert_rows_fit(choices, {matrix});
}

// The kernel's; for tensors for which has_kernel() holds.
at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order, int64_t choices) {
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
    at::Tensor rows = at::empty({row_of_entry.numel(), tokens.size(1)}, tokens.options());
    device::module().layers.expert_rows(tokens, row_of_entry, choices, rows);
    return rows;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const ExpertOrder order{saved[0], saved[1], {}};
    const at::Tensor of_rows = upstream[0].contiguous();
    return {expert_sum(of_rows, {}, order, context->saved_data["choices"].toInt(), of_rows.scalar_type()), {}, {}, {}};
  }
};

class RowSum : public torch::autograd::Function<RowSum> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& weights,
                            const at::Tensor& entry_of_row, const at::Tensor& row_of_entry, int64_t choices) {
    context->save_for_backward({rows, weights, entry_of_row, row_of_entry});
    context->saved_data["choices"] = choices;
    return sum_rows(rows, weights, {entry_of_row, row_of_entry, {}}, choices);
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weights = saved[1];
    const ExpertOrder order{saved[2], saved[3], {}};
    const int64_t choices = context->saved_data["choices"].toInt();
    const at::Tensor of_tokens = upstream[0].contiguous();
    if (at::GradMode::is_enabled()) return differentiable_backward(of_tokens, rows, weights, order, choices);
    at::Tensor of_rows = at::empty_like(rows), of_weights = at::empty_like(weights);
    device::module().layers.expert_sum_gradient(of_tokens, rows, weights, order.row_of_entry, choices, of_rows,
                                                of_weights);
    return {std::move(of_rows), std::move(of_weights), {}, {}, {}};
  }

 private:
  static variable_list differentiable_backward(const at::Tensor& of_tokens, const at::Tensor& rows,
                                               const at::Tensor& weights, const ExpertOrder& order, int64_t choices) {
    const at::Tensor of_entries = of_tokens.repeat_interleave(choices, 0);
    const at::Tensor is_of_none = order.row_of_entry.lt(0).unsqueeze(-1);
    const at::Tensor in_entries = rows.index_select(0, order.row_of_entry.clamp_min(0)).masked_fill(is_of_none, 0);
    const at::Tensor of_rows = (of_entries * weights.unsqueeze(-1)).index_select(0, order.entry_of_row);
    return {of_rows.to(rows.scalar_type()),
            (of_entries.to(at::kFloat) * in_entries.to(at::kFloat)).sum(-1).to(weights.scalar_type()),
            {},
            {},
            {}};
  }
};

void order_operator(Stack& stack) {
  const int64_t num_experts = torch::jit::pop(stack).toInt();
  const at::Tensor experts = torch::jit::pop(stack).toTensor();
  auto order = expert_order(experts, num_experts);
  torch::jit::push(stack, std::move(order.entry_of_row), std::move(order.row_of_entry), std::move(order.ends));
}

void rows_operator(Stack& stack) {
  const int64_t choices = torch::jit::pop(stack).toInt();
  const at::Tensor row_of_entry = torch::jit::pop(stack).toTensor(), entry_of_row = torch::jit::pop(stack).toTensor();
  const at::Tensor tokens = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, expert_rows(tokens, {entry_of_row, row_of_entry, {}}, choices));
}

void sum_operator(Stack& stack) {
  const auto dtype = torch::jit::pop(stack).toScalarType();
  const int64_t choices = torch::jit::pop(stack).toInt();
  const at::Tensor row_of_entry = torch::jit::pop(stack).toTensor(), entry_of_row = torch::jit::pop(stack).toTensor();
  const at::Tensor weights = torch::jit::pop(stack).toTensor(), rows = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, expert_sum(rows, weights, {entry_of_row, row_of_entry, {}}, choices, dtype));
}

constexpr auto kFromSchema = c10::AliasAnalysisKind::FROM_SCHEMA;
const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::expert_order(Tensor experts, int num_experts) -> (Tensor, Tensor, Tensor)",
                          order_operator, kFromSchema),
     torch::jit::Operator("dslaunch::expert_rows(Tensor tokens, Tensor entry_of_row, Tensor row_of_entry, int choices) "
                          "-> Tensor",
                          rows_operator, kFromSchema),
     torch::jit::Operator("dslaunch::expert_sum(Tensor rows, Tensor weights, Tensor entry_of_row, Tensor row_of_entry, "
                          "int choices, ScalarType dtype) -> Tensor",
                          sum_operator, kFromSchema)});

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
  if (!tokens.is_cuda()) return rows_of_operators(tokens, order, choices);
  const at::Tensor dense = tokens.contiguous();
  if (!has_kernel(dense, choices)) return rows_of_operators(tokens, order, choices);
  return TokenRows::apply(dense, order.entry_of_row, order.row_of_entry, choices);
}

at::Tensor expert_sum(const at::Tensor& rows, const at::Tensor& weights, const ExpertOrder& order, int64_t choices,
                      at::ScalarType dtype) {
  const bool has_type = rows.scalar_type() == dtype &&
                        (!weights.defined() || weights.scalar_type() == at::kFloat || weights.scalar_type() == dtype);
  // Of a gradient whose own gradient is wanted, too: PyTorch's operators are differentiable.
  const bool is_plain_sum = !weights.defined() && at::GradMode::is_enabled() && rows.requires_grad();
  if (!has_type || is_plain_sum || !has_kernel(rows, choices)) {
    return sum_of_operators(rows, weights, order, choices, dtype);
  }
  if (!weights.defined()) return sum_rows(rows, weights, order, choices);
  return RowSum::apply(rows, weights.contiguous(), order.entry_of_row, order.row_of_entry, choices);
}

}  // namespace dslaunch::runtime::model::layers
