// The operator of fp8_linear.hpp in graphs, and what puts it there.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/fp8_linear.hpp"
#include "runtime/model/layers/gemm_handle.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
using units::WeightLayout;

// The arguments of dslaunch::linear, and of the operator before its weights and biases.
constexpr size_t kInput = 0, kWeight = 1, kBias = 2, kSumsBias = 3, kWritesGradient = 4;
constexpr size_t kFirst = 3;

// One after the other where one of them does not compute in fp8.
std::vector<at::Tensor> outputs_of(const at::Tensor& input, const std::vector<Fp8Layer>& layers,
                                   const GemmOptions& options) {
  const bool is_alike = std::all_of(layers.begin(), layers.end(), [&](const Fp8Layer& layer) {
    return layer.weight.layout == layers[0].weight.layout &&
           fits(input, layer.weight, layer.bias ? &*layer.bias : nullptr) && computes_in_fp8(input, layer.weight);
  });
  if (is_alike) return fp8_linears(input, layers, options);
  std::vector<at::Tensor> outputs;
  for (const auto& [weight, bias] : layers) {
    const bool is_out_in = weight.layout == WeightLayout::kOutIn;
    outputs.push_back(fused_linear(input, is_out_in ? weight.tensor : weight.tensor.t(), bias, options));
  }
  return outputs;
}

torch::jit::Operation operation(const Node* node) {
  const size_t count = node->inputs().size();
  return [count, gemms = gemms_of(node)](torch::jit::Stack& stack) {
    const auto at = [&](size_t i) -> const c10::IValue& { return torch::jit::peek(stack, i, count); };
    GemmOptions options{.sums_bias = at(1).toBool(), .writes_gradient = at(2).toBool(), .gemms = gemms.cache};
    options.fp8 = gemms.fp8;
    options.keeps_fp8_weights = gemms.keeps_fp8_weights;
    std::vector<Fp8Layer> layers;
    for (size_t i = kFirst; i < count; i += 2) {
      layers.push_back({weight_of(at(i).toTensor(), WeightLayout::kOutIn), at(i + 1).toOptional<at::Tensor>()});
    }
    auto outputs = outputs_of(at(0).toTensor(), layers, options);
    torch::jit::drop(stack, count);
    for (auto& output : outputs) stack.emplace_back(std::move(output));
  };
}

const torch::jit::RegisterOperators kRegistration({torch::jit::Operator(
    std::string(kFp8LinearsOperator) + "(...) -> ...", operation, c10::AliasAnalysisKind::CONSERVATIVE)});

// In front of a node, with what it is read from. False: something else than attributes is computed there.
bool move_before(const Value* value, Node* place) {
  Node* node = const_cast<Value*>(value)->node();
  if (node->kind() == c10::prim::Param || node->isBefore(place)) return true;
  const bool is_view = node->kind() == c10::aten::t;
  if (node->kind() != c10::prim::GetAttr && node->kind() != c10::prim::Constant && !is_view) return false;
  for (const Value* input : node->inputs()) {
    if (!move_before(input, place)) return false;
  }
  node->moveBefore(place);
  return true;
}

bool are_equal(const Value* one, const Value* other) {
  const auto a = torch::jit::toIValue(one), b = torch::jit::toIValue(other);
  return a && b && a->isBool() && b->isBool() && a->toBool() == b->toBool();
}

bool may_join(const Node* one, const Node* other, const graph::Aliases& aliases) {
  if (one->owningBlock() != other->owningBlock() || one->input(kInput) != other->input(kInput)) return false;
  return are_equal(one->input(kSumsBias), other->input(kSumsBias)) &&
         are_equal(one->input(kWritesGradient), other->input(kWritesGradient)) &&
         gemms_of(one).fp8 == gemms_of(other).fp8 && !aliases.is_written(other->input(kInput)) &&
         !aliases.is_written(other->input(kWeight)) && !aliases.is_written(other->input(kBias));
}

std::vector<std::vector<Node*>> groups_in(Block* block, const graph::Aliases& aliases) {
  std::vector<std::vector<Node*>> groups;
  graph::for_each_node(block, [&](Node* node) {
    if (std::string_view(node->kind().toQualString()) != kLinearOperator || !gemms_of(node).fp8) return;
    const auto own = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Node*>& group) {
      return may_join(group[0], node, aliases) && move_before(node->input(kWeight), group[0]) &&
             move_before(node->input(kBias), group[0]);
    });
    own == groups.end() ? groups.push_back({node}) : own->push_back(node);
  });
  std::erase_if(groups, [](const std::vector<Node*>& group) { return group.size() < 2; });
  return groups;
}

void join(const std::vector<Node*>& group) {
  Node* first = group[0];
  std::vector<Value*> inputs{first->input(kInput), first->input(kSumsBias), first->input(kWritesGradient)};
  for (Node* node : group) inputs.insert(inputs.end(), {node->input(kWeight), node->input(kBias)});
  Node* own = first->owningGraph()->create(c10::Symbol::fromQualString(kFp8LinearsOperator), inputs, group.size());
  own->copyAttributes(*first);
  own->setSourceRange(first->sourceRange());
  own->insertBefore(first);
  for (size_t i = 0; i < group.size(); ++i) {
    own->output(i)->copyMetadata(group[i]->output());
    group[i]->output()->replaceAllUsesWith(own->output(i));
    group[i]->destroy();
  }
}

}  // namespace

int join_fp8_layers(const torch::jit::Module& model) {
  int count = 0;
  for (const auto& graph : graph::inline_running_forwards(model)) {
    const graph::Aliases aliases(graph->block());
    for (const auto& group : groups_in(graph->block(), aliases)) {
      join(group);
      count += static_cast<int>(group.size());
    }
  }
  return count;
}

}  // namespace dslaunch::runtime::model::layers
