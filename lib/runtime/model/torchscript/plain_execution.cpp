#include "runtime/model/torchscript/plain_execution.hpp"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

using torch::jit::Graph;
using torch::jit::Node;

// Declared with a side effect for TorchScript's passes: they neither remove nor move it.
constexpr char kOperator[] = "dslaunch::execute_plainly";
const torch::jit::RegisterOperators kRegistration({torch::jit::Operator(
    "dslaunch::execute_plainly() -> ()", [](torch::jit::Stack&) { torch::jit::setGraphExecutorOptimize(false); },
    c10::AliasAnalysisKind::CONSERVATIVE)});

Node* new_switch(Graph& graph) {
  return graph.create(c10::Symbol::fromQualString(kOperator), {}, /*num_outputs=*/0);
}

}  // namespace

void disable_optimizer_in_forks(const torch::jit::Module& model) {
  graph::for_every_node(model, [](Node* node) {
    if (node->kind() == c10::prim::fork) {
      auto forked = node->g(c10::attr::Subgraph);
      forked->prependNode(new_switch(*forked));
    } else if (node->kind() == c10::aten::wait) {
      new_switch(*node->owningGraph())->insertAfter(node);
    }
  });
}

}  // namespace dslaunch::runtime::model::torchscript
