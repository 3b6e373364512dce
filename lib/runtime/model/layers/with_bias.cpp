// The gradient of a bias apart from that of its GEMM, so that a region that computes the GEMM's gradient sums it,
// too (fusion/bias_gradients.hpp).
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/layers/fused_operators.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class WithBias : public torch::autograd::Function<WithBias> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& out, const at::Tensor& bias) {
    context->saved_data["columns"] = bias.numel();
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const at::Tensor rows = upstream[0].reshape({-1, context->saved_data["columns"].toInt()});
    const bool has_kernel = rows.is_cuda() && rows.numel() > 0 && is_kernel_type(rows.scalar_type());
    at::Tensor sums;
    if (context->needs_input_grad(1)) sums = has_kernel ? sum_columns(rows) : rows.sum(0);
    return {std::move(upstream[0]), std::move(sums)};
  }
};

}  // namespace

at::Tensor with_bias(const at::Tensor& out, const at::Tensor& bias) {
  return at::GradMode::is_enabled() && bias.requires_grad() ? WithBias::apply(out, bias) : out;
}

}  // namespace dslaunch::runtime::model::layers
