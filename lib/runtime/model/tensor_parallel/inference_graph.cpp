#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/tensor_parallel/apply_placements.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool is_new_and_read_once(const Value* value) {
  const auto& traits = operators::traits(value->node()->kind());
  return (traits.makes_new_tensor || traits.gemm.factor >= 0) && value->uses().size() == 1;
}

void replace(Node* node, Value* by) {
  node->output()->replaceAllUsesWith(by);
  node->destroy();
}

}  // namespace

void drop_backward(torch::jit::Graph& graph) {
  static const auto copy = c10::Symbol::fromQualString(kCopyOperator),
                    reduce = c10::Symbol::fromQualString(kReduceOperator);
  std::vector<Node*> copies, sums;
  graph::for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == copy) copies.push_back(node);
    if (node->kind() == reduce && is_new_and_read_once(node->input(0))) sums.push_back(node);
  });
  for (Node* node : copies) replace(node, node->input(0));
  for (Node* node : sums) {
    const torch::jit::WithInsertPoint before(node);
    Value* sum = insert_tensor_operator(graph, kReduceInPlaceOperator, {node->input(0)}, tensor_group_of(node));
    sum->copyMetadata(node->output());
    replace(node, sum);
  }
}

}  // namespace dslaunch::runtime::model::tensor_parallel
