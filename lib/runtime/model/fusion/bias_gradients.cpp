#include "runtime/model/fusion/fusion_passes.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

constexpr char kWithBias[] = "dslaunch::with_bias";

std::string_view kind_of(const Node* node) {
  return node->kind().toQualString();
}

bool is_one(const Value* value) {
  const auto number = torch::jit::toIValue(value);
  return number && ((number->isInt() && number->toInt() == 1) || (number->isDouble() && number->toDouble() == 1));
}

// The number of a GEMM's input that is its bias.
std::optional<size_t> bias_of(const Node* node) {
  const int bias = operators::traits(node->kind()).gemm.bias;
  if (bias < 0) return {};
  const auto kind = kind_of(node);
  const bool is_addmm = kind == "aten::addmm" || kind == "dslaunch::addmm";
  if (is_addmm && (node->inputs().size() < 5 || !is_one(node->input(3)) || !is_one(node->input(4)))) return {};
  const auto number = static_cast<size_t>(bias);
  return node->input(number)->type()->isSubtypeOf(*c10::TensorType::get()) ? std::optional(number) : std::nullopt;
}

bool is_view(const Node* node) {
  const auto kind = kind_of(node);
  return kind == "aten::view" || kind == "aten::reshape" || kind == "aten::_unsafe_view";
}

// An operator whose gradient takes a kernel anyway: an activation, a norm.
bool has_gradient_kernel(const Node* node) {
  return operators::traits(node->kind()).gradient == operators::Gradient::kKernel;
}

bool passes_gradient(const Node* node) {
  return operators::traits(node->kind()).gradient == operators::Gradient::kPassed;
}

bool reads_type_or_shape(const Node* node) {
  const auto reads = operators::traits(node->kind()).reads;
  return reads == operators::Reads::kShape || reads == operators::Reads::kDtype;
}

// The GEMM's result, or the view of it that everybody reads.
Value* read_value(Node* gemm) {
  Value* value = gemm->output();
  while (value->uses().size() == 1 && is_view(value->uses()[0].user) && value->uses()[0].offset == 0) {
    value = value->uses()[0].user->output();
  }
  return value;
}

// Whether a region will compute the gradient of the value: an activation reads it, or a norm, or sums that an
// activation or a norm reads, and nothing else but its size.
bool has_gradient_of_region(const Value* value, int depth = 0) {
  constexpr int kMaxSums = 3;  // dropout and the residual's addition, an addition in a polynomial
  bool found = false;
  for (const auto& use : value->uses()) {
    const bool is_read_by_sum = passes_gradient(use.user) && depth < kMaxSums;
    const bool is_read = has_gradient_kernel(use.user) || is_read_by_sum || reads_type_or_shape(use.user);
    if (!is_read && depth == 0) return false;
    found = found || has_gradient_kernel(use.user) ||
            (is_read_by_sum && has_gradient_of_region(use.user->output(), depth + 1));
  }
  return found;
}

void separate(Node* gemm, size_t bias_number) {
  Value* const read = read_value(gemm);
  if (!has_gradient_of_region(read)) return;
  auto& graph = *gemm->owningGraph();
  Value* const bias = gemm->input(bias_number);
  Node* without_history = graph.create(c10::aten::detach, {bias});
  without_history->insertBefore(gemm);
  gemm->replaceInput(bias_number, without_history->output());
  Node* with_bias = graph.create(c10::Symbol::fromQualString(kWithBias), {read, bias});
  with_bias->setSourceRange(gemm->sourceRange());
  with_bias->output()->copyMetadata(read);
  with_bias->insertAfter(read->node());
  read->replaceAllUsesAfterNodeWith(with_bias, with_bias->output());
}

void restore(Node* with_bias) {
  Node* gemm = with_bias->input(0)->node();
  while (is_view(gemm)) gemm = gemm->input(0)->node();
  const size_t number = bias_of(gemm).value();
  Node* without_history = gemm->input(number)->node();
  gemm->replaceInput(number, with_bias->input(1));
  without_history->destroy();
  with_bias->output()->replaceAllUsesWith(with_bias->input(0));
  with_bias->destroy();
}

}  // namespace

void separate_bias_gradients(Block* block) {
  const std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  for (Node* node : nodes) {
    for (Block* inner : node->blocks()) separate_bias_gradients(inner);
    if (const auto number = bias_of(node)) separate(node, *number);
  }
}

void restore_bias_gradients(Block* block) {
  const std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  for (Node* node : nodes) {
    for (Block* inner : node->blocks()) restore_bias_gradients(inner);
    if (kind_of(node) == kWithBias) restore(node);
  }
}

}  // namespace dslaunch::runtime::model::fusion
