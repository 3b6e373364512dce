#include "runtime/model/decoding/row_products.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/device/device_module.hpp"
#include "runtime/device/launch_overlap.hpp"
#include "runtime/model/decoding/decoding_functions.hpp"
#include "runtime/model/decoding/quantized_layers.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Node;
using torch::jit::Value;

constexpr char kLinearsOfRows[] = "dslaunch::linears_of_rows";
constexpr char kQuantizedLinears[] = "dslaunch::quantized_linears_of_rows";
constexpr int64_t kMaxRows = 8;  // more take a GEMM
// More are expanded for a GEMM, which takes longer than to read the weights for eight rows at a time.
constexpr int64_t kMaxQuantizedRows = 32;
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

c10::Symbol weight_attribute(size_t part) {
  return c10::Symbol::attr("weight" + std::to_string(part));
}

torch::jit::Operation quantized_operation(const Node* node) {
  const size_t count = node->outputs().size();
  std::vector<QuantizedWeightPtr> weights;
  for (size_t i = 0; i < count; ++i) {
    weights.push_back(node->ival(weight_attribute(i)).toCustomClass<QuantizedWeight>());
  }
  return [weights = std::move(weights), count](torch::jit::Stack& stack) {
    std::vector<at::Tensor> biases;
    for (size_t i = 0; i < count; ++i) {
      biases.push_back(torch::jit::peek(stack, i + 1, count + 1).toOptional<at::Tensor>().value_or(at::Tensor()));
    }
    auto outs = quantized_linears_of_rows(torch::jit::peek(stack, 0, count + 1).toTensor(), weights, biases);
    torch::jit::drop(stack, count + 1);
    for (auto& out : outs) stack.emplace_back(std::move(out));
  };
}

const torch::jit::RegisterOperators kRegistration(
    {torch::jit::Operator("dslaunch::linears_of_rows(...) -> ...", linears_operation,
                          c10::AliasAnalysisKind::CONSERVATIVE),
     torch::jit::Operator("dslaunch::quantized_linears_of_rows(...) -> ...", quantized_operation,
                          c10::AliasAnalysisKind::CONSERVATIVE)});

// In front of a node, with what it is read from. False: something else than attributes is computed there.
bool move_before(Value* value, Node* place) {
  Node* node = value->node();
  if (node->kind() == c10::prim::Param || node->isBefore(place)) return true;
  const bool is_known = node->kind() == c10::prim::GetAttr || node->kind() == c10::prim::Constant;
  if (!is_known && !quantized_weight_of(value)) return false;
  for (Value* input : node->inputs()) {
    if (!move_before(input, place)) return false;
  }
  node->moveBefore(place);
  return true;
}

bool fits(const at::Tensor& input, const std::vector<QuantizedWeightPtr>& weights,
          const std::vector<at::Tensor>& biases) {
  const auto type = input.scalar_type();
  if (!input.is_cuda() || at::autocast::is_autocast_enabled(at::kCUDA)) return false;
  if ((type != at::kBFloat16 && type != at::kHalf) || !input.is_contiguous()) return false;
  if (input.numel() == 0 || input.numel() > kMaxQuantizedRows * input.size(-1)) return false;
  const bool are_alike = std::all_of(weights.begin(), weights.end(), [&](const QuantizedWeightPtr& weight) {
    return weight->columns == input.size(-1) && weight->dtype == type && weight->type == weights[0]->type;
  });
  return are_alike && std::all_of(biases.begin(), biases.end(), [&](const at::Tensor& bias) {
           return !bias.defined() ||
                  (bias.is_cuda() && bias.dim() == 1 && bias.scalar_type() == type && bias.is_contiguous());
         });
}

// A node for all of a group, which is not in the graph yet.
Node* joined(torch::jit::Graph& graph, const std::vector<Node*>& group) {
  const bool is_quantized = quantized_weight_of(group[0]->input(1)) != nullptr;
  std::vector<Value*> inputs{group[0]->input(0)};
  for (const Node* node : group) {
    if (!is_quantized) inputs.push_back(node->input(1));
    inputs.push_back(node->input(2));
  }
  const auto kind = c10::Symbol::fromQualString(is_quantized ? kQuantizedLinears : kLinearsOfRows);
  Node* own = graph.create(kind, inputs, group.size());
  for (size_t i = 0; is_quantized && i < group.size(); ++i) {
    own->ival_(weight_attribute(i), c10::IValue(quantized_weight_of(group[i]->input(1))));
  }
  return own;
}

// [.., outputs] for each number of outputs.
std::vector<at::Tensor> empty_outputs(const at::Tensor& input, const std::vector<int64_t>& outputs) {
  std::vector<at::Tensor> outs;
  std::vector<int64_t> sizes = input.sizes().vec();
  for (const int64_t count : outputs) {
    sizes.back() = count;
    outs.push_back(at::empty(sizes, input.options()));
  }
  return outs;
}

// False: the kernel does not take them.
bool multiply_eight_by_eight(const at::Tensor& input, const std::vector<QuantizedWeightPtr>& weights,
                             const std::vector<at::Tensor>& biases, const std::vector<at::Tensor>& outs) {
  const at::Tensor rows = input.view({-1, input.size(-1)});
  for (int64_t begin = 0; begin < rows.size(0); begin += kMaxRows) {
    const auto part = [&](const at::Tensor& of) {
      return of.view({rows.size(0), -1}).narrow(0, begin, std::min(kMaxRows, rows.size(0) - begin));
    };
    std::vector<at::Tensor> own;
    for (const at::Tensor& out : outs) own.push_back(part(out));
    const bool overlaps = device::overlaps_launches();
    if (!device::module().decoding.multiply_quantized_rows(part(rows), weights, biases, own, overlaps)) return false;
  }
  return true;
}

}  // namespace

std::vector<at::Tensor> linears_of_rows(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                                        const std::vector<at::Tensor>& biases) {
  std::vector<at::Tensor> outs;
  const bool has_kernel = fits(input, weights, biases);
  if (has_kernel) {
    std::vector<int64_t> outputs;
    for (const at::Tensor& weight : weights) outputs.push_back(weight.size(0));
    outs = empty_outputs(input, outputs);
    const at::Tensor rows = input.view({-1, input.size(-1)});
    if (device::module().decoding.multiply_rows(rows, weights, biases, outs, device::overlaps_launches())) return outs;
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

std::vector<at::Tensor> quantized_linears_of_rows(const at::Tensor& input,
                                                  const std::vector<QuantizedWeightPtr>& weights,
                                                  const std::vector<at::Tensor>& biases) {
  if (fits(input, weights, biases)) {
    std::vector<int64_t> outputs;
    for (const auto& weight : weights) outputs.push_back(weight->outputs);
    auto outs = empty_outputs(input, outputs);
    if (multiply_eight_by_eight(input, weights, biases, outs)) return outs;
  }
  std::vector<at::Tensor> outs;
  for (size_t i = 0; i < weights.size(); ++i) outs.push_back(linear(input, weights[i]->whole(), biases[i]));
  return outs;
}

int use_row_products(torch::jit::Graph& graph) {
  std::vector<std::vector<Node*>> groups;
  for (Node* node : graph.nodes()) {
    if (node->kind() != c10::aten::linear) continue;
    const auto own = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Node*>& group) {
      const bool are_alike = !quantized_weight_of(group[0]->input(1)) == !quantized_weight_of(node->input(1));
      return are_alike && group[0]->input(0) == node->input(0) && group.size() < kMaxParts &&
             move_before(node->input(1), group[0]) && move_before(node->input(2), group[0]);
    });
    own == groups.end() ? groups.push_back({node}) : own->push_back(node);
  }
  for (const auto& group : groups) {
    Node* own = joined(graph, group);
    own->insertBefore(group[0]);
    for (size_t i = 0; i < group.size(); ++i) {
      own->output(i)->copyMetadata(group[i]->output());
      group[i]->output()->replaceAllUsesWith(own->output(i));
      Node* whole = group[i]->input(1)->node();
      group[i]->destroy();
      if (quantized_weight_of(whole->output()) && !whole->hasUses()) whole->destroy();
    }
  }
  return static_cast<int>(groups.size());
}

}  // namespace dslaunch::runtime::model::decoding
