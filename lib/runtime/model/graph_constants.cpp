#include "runtime/model/graph_constants.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/format.hpp"
#include "runtime/model/every_node.hpp"

namespace dslaunch::runtime {
namespace {

using torch::jit::AttributeKind;
using torch::jit::Node;

void for_every_constant(const torch::jit::Module& model, const std::function<void(Node*)>& change) {
  for_every_node(model, [&](Node* node) {
    if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value)) change(node);
  });
}

struct Limits {
  double lowest;
  double substitute;  // for what is below
};
Limits limits_of(at::ScalarType dtype) {
  const double lowest = dtype == at::kHalf ? -65504.0 : -3.3895313892515355e38;
  return {lowest, lowest / 2};
}
constexpr double kLargest = std::numeric_limits<float>::max();

bool is_too_low(double value, const Limits& limits) {
  return std::isfinite(value) && value < limits.lowest;
}
bool is_the_largest(double value) {
  return std::isfinite(value) && value >= kLargest;
}

}  // namespace

void rewrite_device_constants(const torch::jit::Module& model, at::Device device) {
  for_every_constant(model, [device](Node* node) {
    if (node->output()->type()->kind() == c10::TypeKind::DeviceObjType) node->s_(c10::attr::value, device.str());
    if (node->kindOf(c10::attr::value) == AttributeKind::t) {
      node->t_(c10::attr::value, node->t(c10::attr::value).to(device));
    }
  });
}

at::Tensor fitted(const at::Tensor& value, at::ScalarType dtype) {
  if ((dtype != at::kHalf && dtype != at::kBFloat16) || !value.is_floating_point() || value.element_size() < 4 ||
      value.numel() == 0 || !value.is_non_overlapping_and_dense())
    return value;
  const auto limits = limits_of(dtype);
  const at::Tensor too_low = value.lt(limits.lowest).logical_and_(value.isfinite());
  const at::Tensor too_high = value.ge(kLargest).logical_and_(value.isfinite());
  if (!too_low.any().item<bool>() && !too_high.any().item<bool>()) return value;
  return value.masked_fill(too_low, limits.substitute).masked_fill_(too_high, -limits.substitute);
}

void fit_constants(const torch::jit::Module& model, at::ScalarType dtype, std::vector<std::string>& notes) {
  if (dtype != at::kHalf && dtype != at::kBFloat16) return;
  const auto limits = limits_of(dtype);
  int changed = 0;
  for_every_constant(model, [&](Node* node) {
    if (node->kindOf(c10::attr::value) == AttributeKind::f) {
      const double value = node->f(c10::attr::value);
      if (!is_too_low(value, limits) && !is_the_largest(value)) return;
      node->f_(c10::attr::value, value < 0 ? limits.substitute : -limits.substitute);
      changed += 1;
    } else if (node->kindOf(c10::attr::value) == AttributeKind::t) {
      const at::Tensor& value = node->t(c10::attr::value);
      const at::Tensor fit = fitted(value, dtype);
      if (fit.is_same(value)) return;
      node->t_(c10::attr::value, fit);
      changed += 1;
    }
  });
  if (changed == 0) return;
  notes.push_back(fmt::format("{} constants of its graphs (minima of masks) are beyond {} and became {:.4g}", changed,
                              dtype == at::kHalf ? "fp16" : "bf16", limits.substitute));
}

}  // namespace dslaunch::runtime
