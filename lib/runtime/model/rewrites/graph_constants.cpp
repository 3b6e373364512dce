#include "runtime/model/rewrites/graph_constants.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/format.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model::rewrites {
namespace {

using torch::jit::AttributeKind;
using torch::jit::Node;

void for_every_constant(const torch::jit::Module& model, const std::function<void(Node*)>& change) {
  graph::for_every_node(model, [&](Node* node) {
    if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value)) change(node);
  });
}

// In a trace, the result of `torch.tensor(2)` passes through one of these before its use; a Python number does not.
bool copies_constant(const Node* node) {
  return node->kind() == c10::aten::detach || node->kind() == c10::aten::lift_fresh || node->kind() == c10::aten::clone;
}

bool was_number(const Node* node) {
  if (node->kindOf(c10::attr::value) != AttributeKind::t) return false;
  const at::Tensor& value = node->t(c10::attr::value);
  const at::ScalarType dtype = value.scalar_type();
  if (value.dim() != 0 || (dtype != at::kDouble && dtype != at::kLong && dtype != at::kComplexDouble)) return false;
  for (const auto& use : node->output()->uses()) {
    if (copies_constant(use.user)) return false;
  }
  return true;
}

}  // namespace

void restore_numbers(const torch::jit::Module& model) {
  for_every_constant(model, [](Node* node) {
    if (!was_number(node)) return;
    const at::Tensor number = node->t(c10::attr::value).clone();
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    node->t_(c10::attr::value, number);
  });
}

void rewrite_device_constants(const torch::jit::Module& model, at::Device device) {
  for_every_constant(model, [device](Node* node) {
    if (node->output()->type()->kind() == c10::TypeKind::DeviceObjType) node->s_(c10::attr::value, device.str());
    if (node->kindOf(c10::attr::value) == AttributeKind::t) {
      node->t_(c10::attr::value, node->t(c10::attr::value).to(device));
    }
  });
}

void fit_constants(const torch::jit::Module& model, at::ScalarType dtype, std::vector<std::string>& notes) {
  if (!is_half(dtype)) return;
  int changed = 0;
  for_every_constant(model, [&](Node* node) {
    if (node->kindOf(c10::attr::value) == AttributeKind::f) {
      const double value = node->f(c10::attr::value);
      const double fit = fitted(value, dtype);
      if (fit == value || std::isnan(value)) return;
      node->f_(c10::attr::value, fit);
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
  notes.push_back(
      fmt::format("{} constants of its graphs (minima of masks) are out of range for {} and were replaced by {:.4g}",
                  changed, dtype == at::kHalf ? "fp16" : "bf16", fitted(-std::numeric_limits<double>::max(), dtype)));
}

}  // namespace dslaunch::runtime::model::rewrites
