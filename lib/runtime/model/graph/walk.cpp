#include "runtime/model/graph/walk.hpp"

#include <torch/csrc/jit/api/function_impl.h>

#include <unordered_set>

#include "runtime/model/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Block;
using torch::jit::Node;

class NodeVisitor {
 public:
  explicit NodeVisitor(const std::function<void(Node*)>& visitor) : visitor_(visitor) {}

  void visit(const torch::jit::Module& model) {
    for (const auto& module : model.modules()) {
      if (!seen_.insert(module.type().get()).second) continue;
      for (auto* method : module.type()->methods()) visit(*method);
      if (const auto forward = units::unit_forward(*module.type())) visit(forward->original.graph()->block());
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
      if (node->kind() == c10::prim::CallFunction) {
        visit(*node->input(0)->type()->expect<c10::FunctionType>()->function());
      }
      if (node->kind() == c10::prim::fork) visit(node->g(c10::attr::Subgraph)->block());
      for (Block* inner : node->blocks()) visit(inner);
      visitor_(node);
    }
  }

  const std::function<void(Node*)>& visitor_;
  std::unordered_set<const void*> seen_;  // classes and functions
};

}  // namespace

void for_every_node(const torch::jit::Module& model, const std::function<void(Node*)>& visit) {
  NodeVisitor(visit).visit(model);
}

}  // namespace dslaunch::runtime::model::graph
