#include "runtime/model/plain_execution.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <unordered_set>

namespace dslaunch::runtime {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;

// Has a side effect as far as TorchScript's passes know: they neither drop nor move it.
constexpr char kOperator[] = "dslaunch::execute_plainly";
const torch::jit::RegisterOperators kRegistration({torch::jit::Operator(
    "dslaunch::execute_plainly() -> ()", [](torch::jit::Stack&) { torch::jit::setGraphExecutorOptimize(false); },
    c10::AliasAnalysisKind::CONSERVATIVE)});

Node* new_switch(Graph& graph) {
  return graph.create(c10::Symbol::fromQualString(kOperator), {}, /*num_outputs=*/0);
}

class ForkVisitor {
 public:
  void visit(const torch::jit::Module& model) {
    for (const auto& module : model.modules()) {
      if (!seen_.insert(module.type().get()).second) continue;
      for (auto* method : module.type()->methods()) visit(*method);
    }
  }

 private:
  void visit(torch::jit::Function& function) {
    if (!function.isGraphFunction() || !seen_.insert(&function).second) return;
    function.ensure_defined();
    visit(torch::jit::toGraphFunction(function).graph()->block());
  }
  void visit(Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it++;
      if (node->kind() == c10::prim::fork) {
        auto forked = node->g(c10::attr::Subgraph);
        visit(forked->block());
        forked->prependNode(new_switch(*forked));
      } else if (node->kind() == c10::aten::wait) {
        new_switch(*block->owningGraph())->insertAfter(node);
      } else if (node->kind() == c10::prim::CallFunction) {
        visit(*node->input(0)->type()->expect<c10::FunctionType>()->function());
      }
      for (Block* inner : node->blocks()) visit(inner);
    }
  }

  std::unordered_set<const void*> seen_;  // classes and functions
};

}  // namespace

void run_forks_plainly(const torch::jit::Module& model) {
  ForkVisitor().visit(model);
}

}  // namespace dslaunch::runtime
