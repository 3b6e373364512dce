#include "runtime/model/layers/layer_norm.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include "runtime/device/device_module.hpp"
#include "runtime/model/graph/pattern.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

// Of out, [rows, columns], and of the input that is passed through; undefined: it was not asked for.
struct Upstream {
  at::Tensor out, input;
};

struct Forward {
  at::Tensor out;
  RowStatistics statistics;
};

Forward run_forward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (input.is_cpu()) {
    auto [out, means, rstds] = at::native_layer_norm(input, weight.sizes(), weight, bias, eps);
    return {std::move(out), {std::move(means), std::move(rstds)}};
  }
  const auto options = input.options().dtype(at::kFloat);
  const int64_t rows = input.numel() / weight.numel();
  Forward made{at::empty_like(input), {at::empty({rows}, options), at::empty({rows}, options)}};
  device::module().layers.layer_norm(input, weight, bias, eps, made.out, made.statistics);
  return made;
}

// Dense, and where the kernel can read it.
at::Tensor readable(const at::Tensor& gradient, int64_t columns) {
  if (!gradient.defined()) return gradient;
  at::Tensor rows = gradient.contiguous();
  return device::module().layers.layer_norm_fits(columns, {rows}) ? rows : rows.clone();
}

variable_list run_backward(const Upstream& upstream, const variable_list& saved) {
  const at::Tensor &input = saved[0], &weight = saved[1], &bias = saved[2];
  const RowStatistics statistics{saved[3], saved[4]};
  if (input.is_cpu()) {
    auto [of_input, of_weight, of_bias] = at::native_layer_norm_backward(
        upstream.out, input, weight.sizes(), statistics.means, statistics.rstds, weight, bias, {true, true, true});
    if (upstream.input.defined()) of_input = of_input + upstream.input;
    return {std::move(of_input), std::move(of_weight), std::move(of_bias), {}};
  }
  const int64_t columns = weight.numel();
  at::Tensor of_input = at::empty_like(input), of_weight = at::empty_like(weight), of_bias = at::empty_like(bias);
  device::module().layers.layer_norm_gradient(readable(upstream.out, columns), readable(upstream.input, columns), input,
                                              weight, statistics, of_input, of_weight, of_bias);
  return {std::move(of_input), std::move(of_weight), std::move(of_bias), {}};
}

// Second-order gradients are wanted.
variable_list differentiable_backward(const Upstream& upstream, const variable_list& saved, double eps) {
  const auto out = at::layer_norm(saved[0], saved[1].sizes(), saved[1], saved[2], eps);
  variable_list wanted, gradients(4);
  for (size_t i = 0; i < 3; ++i) {
    if (saved[i].requires_grad()) wanted.push_back(saved[i]);
  }
  auto found = torch::autograd::grad({out}, wanted, {upstream.out}, true, /*create_graph=*/true);
  for (size_t i = 0, next = 0; i < 3; ++i) {
    if (saved[i].requires_grad()) gradients[i] = found[next++];
  }
  if (upstream.input.defined()) gradients[0] = gradients[0] + upstream.input;
  return gradients;
}

class FusedLayerNorm : public torch::autograd::Function<FusedLayerNorm> {
 public:
  // With `passes_through` the input is a second result.
  static variable_list forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias, double eps, bool passes_through) {
    auto made = run_forward(input, weight, bias, eps);
    context->save_for_backward({input, weight, bias, made.statistics.means, made.statistics.rstds});
    context->saved_data["eps"] = eps;
    context->set_materialize_grads(false);
    return passes_through ? variable_list{std::move(made.out), input} : variable_list{std::move(made.out)};
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    const Upstream upstream{given[0], given.size() > 1 ? given[1] : at::Tensor()};
    variable_list gradients(5);
    if (!upstream.out.defined()) {
      gradients[0] = upstream.input;
      return gradients;
    }
    const auto saved = context->get_saved_variables();
    gradients = at::GradMode::is_enabled()
                    ? differentiable_backward(upstream, saved, context->saved_data["eps"].toDouble())
                    : run_backward(upstream, saved);
    gradients.resize(5);  // the last two arguments have none
    return gradients;
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

// Whether our kernels compute it, of rows that lie side by side.
bool has_kernel(const at::Tensor& input, at::IntArrayRef shape, const std::optional<at::Tensor>& weight,
                const std::optional<at::Tensor>& bias) {
  return weight && weight->defined() && bias && bias->defined() &&
         !at::autocast::is_autocast_enabled(input.device().type()) && fits(input, shape, *weight, *bias);
}

bool has_gpu_kernel(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  return device::module().layers.layer_norm_fits(weight.numel(), {rows, weight, bias});
}

variable_list apply(const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight, const at::Tensor& bias,
                    double eps, bool passes_through) {
  // For profilers that count operators.
  RECORD_FUNCTION("aten::layer_norm", (std::vector<c10::IValue>{input, shape, weight, bias, eps}));
  return FusedLayerNorm::apply(input, weight, bias, eps, passes_through);
}

void layer_norm_operator(Stack& stack) {
  constexpr size_t kCount = 6;  // the last argument concerns cuDNN
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  at::Tensor out = fused_layer_norm(at(0).toTensor(), at(1).toIntVector(), at(2).toOptional<at::Tensor>(),
                                    at(3).toOptional<at::Tensor>(), at(4).toDouble());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out));
}

void layer_norm_and_input_operator(Stack& stack) {
  constexpr size_t kCount = 6;
  const auto at = [&stack](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, kCount); };
  auto [out, input] = fused_layer_norm_and_input(at(0).toTensor(), at(1).toIntVector(), at(2).toOptional<at::Tensor>(),
                                                 at(3).toOptional<at::Tensor>(), at(4).toDouble());
  torch::jit::drop(stack, kCount);
  torch::jit::push(stack, std::move(out), std::move(input));
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, "
                          "float eps, bool cudnn_enable) -> Tensor",
                          layer_norm_operator, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("dslaunch::layer_norm_and_input(Tensor(a) input, int[] normalized_shape, Tensor? weight, "
                          "Tensor? bias, float eps, bool cudnn_enable) -> (Tensor, Tensor(a))",
                          layer_norm_and_input_operator, c10::AliasAnalysisKind::FROM_SCHEMA)});

}  // namespace

at::Tensor fused_layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            double eps) {
  if (input.is_cuda() && has_kernel(input, normalized_shape, weight, bias)) {
    const at::Tensor rows = input.contiguous();
    if (has_gpu_kernel(rows, *weight, *bias)) return apply(rows, normalized_shape, *weight, *bias, eps, false)[0];
  }
  return at::layer_norm(input, normalized_shape, weight, bias, eps);
}

std::pair<at::Tensor, at::Tensor> fused_layer_norm_and_input(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                                             const std::optional<at::Tensor>& weight,
                                                             const std::optional<at::Tensor>& bias, double eps) {
  const bool trains = at::GradMode::is_enabled() && input.requires_grad();
  if (trains && (input.is_cuda() || input.is_cpu()) && input.is_contiguous() &&
      has_kernel(input, normalized_shape, weight, bias) && (input.is_cpu() || has_gpu_kernel(input, *weight, *bias))) {
    auto made = apply(input, normalized_shape, *weight, *bias, eps, true);
    return {std::move(made[0]), std::move(made[1])};
  }
  return {fused_layer_norm(input, normalized_shape, weight, bias, eps), input};
}

void fuse_layer_norm(torch::jit::Node* node) {
  graph::replace_node(node, "dslaunch::layer_norm");
}

}  // namespace dslaunch::runtime::model::layers
