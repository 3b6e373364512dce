#include "runtime/model/decoding/row_products.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/device/device_module.hpp"
#include "runtime/model/decoding/decoding_functions.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Node;
using torch::jit::Value;

constexpr char kLinearsOfRows[] = "dslaunch::linears_of_rows";
constexpr int64_t kMaxRows = 8;  // more take a GEMM
constexpr size_t kMaxParts = 4;

bool fits(const at::Tensor& input, const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases) {
  const auto type = input.scalar_type();
  if (!input.is_cuda() || at::autocast::is_autocast_enabled(at::kCUDA)) return false;
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) return false;
  const auto is_alike = [&](const at::Tensor& tensor) {
    return !tensor.defined() || (tensor.is_cuda() && tensor.scalar_type() == type && tensor.is_contiguous());
  };
  const bool are_matrices = std::all_of(weights.begin(), weights.end(), [&](const at::Tensor& weight) {
    return weight.dim() == 2 && weight.size(1) == input.size(-1);
  });
  return are_matrices && input.numel() > 0 && input.numel() <= kMaxRows * input.size(-1) && is_alike(input) &&
         std::all_of(weights.begin(), weights.end(), is_alike) && std::all_of(biases.begin(), biases.end(), is_alike);
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(input, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

torch::jit::Operation linears_operation(const Node* node) {
  const size_t num_inputs = node->inputs().size();
  return [num_inputs](torch::jit::Stack& stack) {
    const auto at = [&](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, num_inputs); };
    std::vector<at::Tensor> weights, biases;
    for (size_t i = 1; i < num_inputs; i += 2) {
      weights.push_back(at(i).toTensor());
      biases.push_back(at(i + 1).toOptional<at::Tensor>().value_or(at::Tensor()));
    }
    auto outs = linears_of_rows(at(0).toTensor(), weights, biases);
    torch::jit::drop(stack, num_inputs);
    for (auto& out : outs) stack.emplace_back(std::move(out));
  };
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator("dslaunch::linears_of_rows(...) -> ...",
                                                                        linears_operation,
                                                                        c10::AliasAnalysisKind::CONSERVATIVE)});

// In front of a node, with what it is read from. False: something else than attributes is computed there.
bool move_before(Value* value, Node* place) {
  Node* node = value->node();
  if (node->kind() == c10::prim::Param || node->isBefore(place)) return true;
  if (node->kind() != c10::prim::GetAttr && node->kind() != c10::prim::Constant) return false;
  for (Value* input : node->inputs()) {
    if (!move_before(input, place)) return false;
  }
  node->moveBefore(place);
  return true;
}

}  // namespace

std::vector<at::Tensor> linears_of_rows(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                                        const std::vector<at::Tensor>& biases) {
  std::vector<at::Tensor> outs;
  const bool has_kernel = fits(input, weights, biases);
  if (has_kernel) {
    std::vector<int64_t> sizes = input.sizes().vec();
    for (const at::Tensor& weight : weights) {
      sizes.back() = weight.size(0);
      outs.push_back(at::empty(sizes, input.options()));
    }
    const at::Tensor rows = input.view({-1, input.size(-1)});
    if (device::module().decoding.multiply_rows(rows, weights, biases, outs)) return outs;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    at::Tensor out = linear(input, weights[i], biases[i]);
    if (has_kernel) {
      outs[i] = std::move(out);
    } else {
      outs.push_back(std::move(out));
    }
  }
  return outs;
}

int use_row_products(torch::jit::Graph& graph) {
  static const auto kind = c10::Symbol::fromQualString(kLinearsOfRows);
  std::vector<std::vector<Node*>> groups;
  for (Node* node : graph.nodes()) {
    if (node->kind() != c10::aten::linear) continue;
    const auto own = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Node*>& group) {
      return group[0]->input(0) == node->input(0) && group.size() < kMaxParts &&
             move_before(node->input(1), group[0]) && move_before(node->input(2), group[0]);
    });
    own == groups.end() ? groups.push_back({node}) : own->push_back(node);
  }
  for (const auto& group : groups) {
    std::vector<Value*> inputs{group[0]->input(0)};
    for (const Node* node : group) inputs.insert(inputs.end(), {node->input(1), node->input(2)});
    Node* own = graph.create(kind, inputs, group.size());
    own->insertBefore(group[0]);
    for (size_t i = 0; i < group.size(); ++i) {
      own->output(i)->copyMetadata(group[i]->output());
      group[i]->output()->replaceAllUsesWith(own->output(i));
      group[i]->destroy();
    }
  }
  return static_cast<int>(groups.size());
}

}  // namespace dslaunch::runtime::model::decoding
