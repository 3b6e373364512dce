#include "runtime/model/graph/walk.hpp"

#include <unordered_set>
#include <utility>

#include "runtime/model/torchscript/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Block;
using torch::jit::Node;

class ModelVisitor {
 public:
  using OnNode = std::function<void(Node*)>;
  using OnFunction = std::function<void(torch::jit::GraphFunction&)>;

  ModelVisitor(OnNode on_node, OnFunction on_function)
      : on_node_(std::move(on_node)), on_function_(std::move(on_function)) {}

  void visit(const torch::jit::Module& model) {
    for (const auto& module : model.modules()) {
      if (!seen_.insert(module.type().get()).second) continue;
      for (auto* method : module.type()->methods()) visit(*method);
      if (const auto forward = units::unit_forward(*module.type())) visit_code(forward->original);
    }
  }

 private:
  void visit(torch::jit::Function& function) {
    if (!function.isGraphFunction() || !seen_.insert(&function).second) return;
    function.ensure_defined();
    visit_code(torch::jit::toGraphFunction(function));
  }
  void visit_code(torch::jit::GraphFunction& function) {
    visit(function.graph()->block());
    on_function_(function);
  }
  void visit(Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it++;
      if (node->kind() == c10::prim::CallFunction) {
        visit(*node->input(0)->type()->expect<c10::FunctionType>()->function());
      }
      if (node->kind() == c10::prim::fork) visit(node->g(c10::attr::Subgraph)->block());
      for (Block* inner : node->blocks()) visit(inner);
      on_node_(node);
    }
  }

  const OnNode on_node_;
  const OnFunction on_function_;
  std::unordered_set<const void*> seen_;  // classes and functions
};

}  // namespace

void for_every_node(const torch::jit::Module& model, const std::function<void(Node*)>& visit) {
  ModelVisitor(visit, [](auto&) {}).visit(model);
}

void for_every_function(const torch::jit::Module& model, const std::function<void(torch::jit::GraphFunction&)>& visit) {
  ModelVisitor([](Node*) {}, visit).visit(model);
}

}  // namespace dslaunch::runtime::model::graph
