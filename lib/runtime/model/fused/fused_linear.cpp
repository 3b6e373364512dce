// A linear layer that computes its bias gradient, the column sums of the output gradient, with one of our kernels.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/fused/fused_operators.hpp"
#include "runtime/model/fused/layer_functions.hpp"

namespace dslaunch::runtime::model::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor column_sums(const at::Tensor& rows) {
  if (at::GradMode::is_enabled()) return rows.sum(0);  // second-order gradients are wanted
  at::Tensor sums = at::empty({rows.size(1)}, rows.options());
  layer_functions().column_sums(rows.contiguous(), sums);
  return sums;
}

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({input, weight});
    const at::AutoDispatchBelowADInplaceOrView plain;  // else the output would be a view that must not be written to
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    const at::Tensor rows = upstream[0].reshape({-1, weight.size(0)});
    variable_list gradients(3);
    if (context->needs_input_grad(0)) gradients[0] = rows.mm(weight).view(input.sizes());
    if (context->needs_input_grad(1)) gradients[1] = rows.t().mm(input.reshape({-1, weight.size(1)}));
    if (context->needs_input_grad(2)) gradients[2] = column_sums(rows);
    return gradients;
  }
};

bool fits(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const auto type = input.scalar_type();
  const bool of_one_type = weight.scalar_type() == type && bias.scalar_type() == type;
  const bool on_one_device = weight.device() == input.device() && bias.device() == input.device();
  return input.is_cuda() && on_one_device && of_one_type && is_kernel_type(type) && input.dim() >= 2 &&
         weight.dim() == 2 && bias.dim() == 1 && input.size(-1) == weight.size(1) && bias.size(0) == weight.size(0) &&
         input.numel() > 0 && weight.numel() > 0;
}

}  // namespace

at::Tensor fused_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  // Only if PyTorch would save the same tensors for backward.
  const bool trains =
      at::GradMode::is_enabled() && bias && bias->defined() && bias->requires_grad() && weight.requires_grad();
  if (trains && !at::autocast::is_autocast_enabled(input.device().type()) && fits(input, weight, *bias)) {
    return FusedLinear::apply(input, weight, *bias);
  }
  return at::linear(input, weight, bias);
}

}  // namespace dslaunch::runtime::model::fused
