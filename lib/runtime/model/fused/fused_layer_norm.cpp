// Layer normalisation whose backward reads the rows once for all three gradients.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/fused/fused_operators.hpp"
#include "runtime/model/fused/layer_functions.hpp"

namespace dslaunch::runtime::model::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class FusedLayerNorm : public torch::autograd::Function<FusedLayerNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, double eps) {
    at::Tensor out = at::empty_like(input);
    const auto options = input.options().dtype(at::kFloat);
    const int64_t rows = input.numel() / weight.numel();
    const RowStatistics statistics{at::empty({rows}, options), at::empty({rows}, options)};
    layer_functions().layer_norm(input, weight, bias, eps, out, statistics);
    context->save_for_backward({input, weight, bias, statistics.means, statistics.rstds});
    context->saved_data["eps"] = eps;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &bias = saved[2];
    if (at::GradMode::is_enabled()) {  // second-order gradients are wanted
      const auto out = at::layer_norm(input, weight.sizes(), weight, bias, context->saved_data["eps"].toDouble());
      variable_list wanted, gradients(4);
      for (size_t i = 0; i < 3; ++i) {
        if (saved[i].requires_grad()) wanted.push_back(saved[i]);
      }
      auto found = torch::autograd::grad({out}, wanted, {upstream[0]}, true, /*create_graph=*/true);
      for (size_t i = 0, next = 0; i < 3; ++i) {
        if (saved[i].requires_grad()) gradients[i] = found[next++];
      }
      return gradients;
    }
    at::Tensor input_gradient = at::empty_like(input), weight_gradient = at::empty_like(weight),
               bias_gradient = at::empty_like(bias);
    layer_functions().layer_norm_gradient(upstream[0].contiguous(), input, weight, {saved[3], saved[4]}, input_gradient,
                                          weight_gradient, bias_gradient);
    return {std::move(input_gradient), std::move(weight_gradient), std::move(bias_gradient), {}};
  }
};

bool is_like(const at::Tensor& parameter, const at::Tensor& input, at::IntArrayRef shape) {
  return parameter.device() == input.device() && parameter.scalar_type() == input.scalar_type() &&
         parameter.sizes() == shape && parameter.is_contiguous();
}

bool fits(const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight, const at::Tensor& bias) {
  return is_kernel_type(input.scalar_type()) && input.numel() > 0 && !shape.empty() &&
         input.dim() >= static_cast<int64_t>(shape.size()) &&
         input.sizes().slice(static_cast<size_t>(input.dim()) - shape.size()) == shape &&
         is_like(weight, input, shape) && is_like(bias, input, shape);
}

}  // namespace

at::Tensor fused_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            double eps) {
  if (input.is_cuda() && weight && weight->defined() && bias && bias->defined() &&
      !at::autocast::is_autocast_enabled(at::kCUDA) && fits(input, normalized_shape, *weight, *bias)) {
    const at::Tensor rows = input.contiguous();
    if (layer_functions().layer_norm_fits(weight->numel(), {rows, *weight, *bias})) {
      // For profilers that count operators.
      RECORD_FUNCTION("aten::layer_norm", (std::vector<c10::IValue>{input, normalized_shape, *weight, *bias, eps}));
      return FusedLayerNorm::apply(rows, *weight, *bias, eps);
    }
  }
  return at::layer_norm(input, normalized_shape, weight, bias, eps);
}

}  // namespace dslaunch::runtime::model::fused
