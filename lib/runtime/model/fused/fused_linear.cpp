// A product with a weight whose backward is ours: the bias gradient, the column sums of the output gradient, comes from
// one of our kernels, and the weight gradient may be left for later.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/fused/fused_operators.hpp"
#include "runtime/model/fused/layer_functions.hpp"
#include "runtime/model/units/gather_node.hpp"

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

enum class WeightLayout : uint8_t { kOutIn, kInOut };  // of at::linear; of at::matmul and at::addmm

// Two dims, however many `tensor` has.
at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

// The products that autograd computes for PyTorch's operators, so on the CPU the same bits.
at::Tensor weight_gradient(const at::Tensor& input, const at::Tensor& upstream_rows, WeightLayout layout) {
  return layout == WeightLayout::kOutIn ? upstream_rows.t().mm(as_rows(input)) : as_rows(input).t().mm(upstream_rows);
}

class Product : public torch::autograd::Function<Product> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, bool is_out_in, bool uses_kernel) {
    context->save_for_backward({input, weight});
    context->saved_data["is_out_in"] = is_out_in;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["uses_kernel"] = uses_kernel;
    const at::AutoDispatchBelowADInplaceOrView plain;  // else the output would be a view that must not be written to
    if (is_out_in) return at::linear(input, weight, bias);
    return bias ? at::addmm(*bias, input, weight) : at::matmul(input, weight);
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    const auto layout = context->saved_data["is_out_in"].toBool() ? WeightLayout::kOutIn : WeightLayout::kInOut;
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const at::Tensor rows = as_rows(upstream[0]);
    variable_list gradients(5);
    if (context->needs_input_grad(0)) {
      gradients[0] = rows.mm(layout == WeightLayout::kOutIn ? weight : weight.t()).view(input.sizes());
    }
    if (context->needs_input_grad(1) && !defer_weight_gradient(input, weight, rows, layout)) {
      gradients[1] = weight_gradient(input, rows, layout);
    }
    if (has_bias && context->needs_input_grad(2)) {
      gradients[2] = context->saved_data["uses_kernel"].toBool() ? column_sums(rows) : rows.sum(0);
    }
    return gradients;
  }

 private:
  static bool defer_weight_gradient(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& rows,
                                    WeightLayout layout) {
    if (at::GradMode::is_enabled()) return false;  // second-order gradients are wanted
    const auto gathered = units::gathered_parameter(weight);
    // Without the history of the input, which would keep the graph before it alive.
    return gathered && gathered->call->defer(gathered->index, [input = input.detach(), rows, layout] {
      return weight_gradient(input, rows, layout);
    });
  }
};

bool fits(const at::Tensor& input, const at::Tensor& weight, const at::Tensor* bias, WeightLayout layout) {
  if (input.dim() < 2 || weight.dim() != 2 || input.numel() == 0 || weight.numel() == 0) return false;
  const auto type = input.scalar_type();
  const bool is_out_in = layout == WeightLayout::kOutIn;
  if (!at::isFloatingType(type) || weight.scalar_type() != type || weight.device() != input.device() ||
      input.layout() != at::kStrided || input.size(-1) != weight.size(is_out_in ? 1 : 0)) {
    return false;
  }
  return bias == nullptr || (bias->scalar_type() == type && bias->device() == input.device() && bias->dim() == 1 &&
                             bias->size(0) == weight.size(is_out_in ? 0 : 1));
}

bool may_defer(const at::Tensor& weight) {
  const auto gathered = units::gathered_parameter(weight);
  return gathered && gathered->call->may_defer();
}

bool is_in_training(const at::Tensor& input, const at::Tensor& weight) {
  return at::GradMode::is_enabled() && weight.requires_grad() &&
         !at::autocast::is_autocast_enabled(input.device().type());
}

}  // namespace

at::Tensor fused_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const at::Tensor* given = bias && bias->defined() ? &*bias : nullptr;
  if (is_in_training(input, weight) && fits(input, weight, given, WeightLayout::kOutIn)) {
    // Our kernel only if PyTorch would save the same tensors for backward.
    const bool uses_kernel =
        given != nullptr && given->requires_grad() && input.is_cuda() && is_kernel_type(input.scalar_type());
    if (uses_kernel || may_defer(weight)) {
      return Product::apply(input, weight, given != nullptr ? bias : std::nullopt, /*is_out_in=*/true, uses_kernel);
    }
  }
  return at::linear(input, weight, bias);
}

at::Tensor deferring_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const at::Tensor* given = bias && bias->defined() ? &*bias : nullptr;
  if (is_in_training(input, weight) && fits(input, weight, given, WeightLayout::kOutIn) && may_defer(weight)) {
    return Product::apply(input, weight, given != nullptr ? bias : std::nullopt, /*is_out_in=*/true,
                          /*uses_kernel=*/false);
  }
  return at::linear(input, weight, bias);
}

at::Tensor deferring_matmul(const at::Tensor& input, const at::Tensor& weight) {
  if (is_in_training(input, weight) && fits(input, weight, nullptr, WeightLayout::kInOut) && may_defer(weight)) {
    return Product::apply(input, weight, std::optional<at::Tensor>(), /*is_out_in=*/false, /*uses_kernel=*/false);
  }
  return at::matmul(input, weight);
}

at::Tensor deferring_addmm(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                           const at::Scalar& beta, const at::Scalar& alpha) {
  const bool is_plain_sum = beta.equal(1) && alpha.equal(1);
  if (is_plain_sum && is_in_training(input, weight) && fits(input, weight, &bias, WeightLayout::kInOut) &&
      may_defer(weight)) {
    return Product::apply(input, weight, std::optional<at::Tensor>(bias), /*is_out_in=*/false, /*uses_kernel=*/false);
  }
  return at::addmm(bias, input, weight, beta, alpha);
}

}  // namespace dslaunch::runtime::model::fused
