// Cross entropy without copies of the logits. At 16 bits PyTorch writes the logits in fp32, their log-softmax in fp32
// and both gradients: 26 bytes per element; this implementation takes 6.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/device/device_module.hpp"
#include "runtime/model/layers/fused_operators.hpp"
#include "runtime/model/layers/layer_functions.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor with_operators(const at::Tensor& logits, const at::Tensor& labels, const std::optional<at::Tensor>& weight,
                          int64_t reduction, int64_t ignore_index, double label_smoothing, bool in_float) {
  return at::cross_entropy_loss(in_float ? logits.to(at::kFloat) : logits, labels, weight, reduction, ignore_index,
                                label_smoothing);
}

class FusedCrossEntropy : public torch::autograd::Function<FusedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                            int64_t reduction, int64_t ignore_index, bool in_float) {
    const auto options = logits.options().dtype(at::kFloat);
    const at::Tensor losses = at::empty({logits.size(0)}, options), log_sums = at::empty({logits.size(0)}, options);
    at::Tensor total = at::empty({}, options);
    const at::Tensor weight = at::empty({}, options);
    device::module().layers.cross_entropy(logits, labels, ignore_index, losses, log_sums);
    device::module().layers.cross_entropy_total(losses, labels, ignore_index, reduction == at::Reduction::Mean, total,
                                                weight);
    context->save_for_backward({logits, labels, log_sums, weight});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["in_float"] = in_float;
    return in_float ? total : total.to(logits.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &labels = saved[1];
    const int64_t ignore_index = context->saved_data["ignore_index"].toInt();
    if (at::GradMode::is_enabled()) {  // second-order gradients are wanted
      const auto loss = with_operators(logits, labels, {}, context->saved_data["reduction"].toInt(), ignore_index, 0.0,
                                       context->saved_data["in_float"].toBool());
      auto gradients = torch::autograd::grad({loss}, {logits}, {upstream[0]}, true, /*create_graph=*/true);
      return {gradients[0], {}, {}, {}, {}};
    }
    at::Tensor gradient = at::empty_like(logits);
    device::module().layers.cross_entropy_gradient(logits, labels, ignore_index, saved[2], saved[3],
                                                   upstream[0].to(at::kFloat).contiguous(), gradient);
    return {std::move(gradient), {}, {}, {}, {}};
  }
};

bool fits(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.is_cuda() && labels.device() == logits.device() && is_kernel_type(logits.scalar_type()) &&
         labels.scalar_type() == at::kLong && logits.dim() == 2 && labels.dim() == 1 &&
         labels.size(0) == logits.size(0) && logits.numel() > 0;
}

}  // namespace

at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                               const std::optional<at::Tensor>& weight, int64_t reduction, int64_t ignore_index,
                               double label_smoothing, bool in_float) {
  const bool is_weighed = weight && weight->defined();
  // Under autocast the operator computes in fp32 anyway.
  const bool casts = in_float || at::autocast::is_autocast_enabled(logits.device().type());
  if (is_weighed || label_smoothing != 0.0 || reduction == at::Reduction::None || !fits(logits, labels)) {
    return with_operators(logits, labels, weight, reduction, ignore_index, label_smoothing, in_float);
  }
  return FusedCrossEntropy::apply(logits.contiguous(), labels.contiguous(), reduction, ignore_index, casts);
}

}  // namespace dslaunch::runtime::model::layers
