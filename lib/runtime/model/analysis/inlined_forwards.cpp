#include "runtime/model/analysis/inlined_forwards.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <unordered_set>

#include "runtime/model/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;

constexpr int kMaxDepth = 64;  // of calls

// Whether a call is one of a unit.
bool is_unit_call(const Node* node) {
  const auto type = node->input(0)->type()->cast<c10::ClassType>();
  return type != nullptr && node->s(c10::attr::name) == "forward" && units::unit_forward(*type) != nullptr;
}

torch::jit::GraphFunction* callee_of(Node* node) {
  torch::jit::Function* function = nullptr;
  if (node->kind() == c10::prim::CallFunction) {
    function = node->input(0)->type()->expect<c10::FunctionType>()->function();
  } else if (node->kind() == c10::prim::CallMethod && !is_unit_call(node)) {
    const auto type = node->input(0)->type()->cast<c10::ClassType>();
    function = type == nullptr ? nullptr : type->findMethod(node->s(c10::attr::name));
  }
  if (function == nullptr || !function->isGraphFunction()) return nullptr;
  function->ensure_defined();
  return &torch::jit::toGraphFunction(*function);
}

void inline_calls(Block* block, int depth) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it++;
    for (Block* inner : node->blocks()) inline_calls(inner, depth);
    auto* callee = depth < kMaxDepth ? callee_of(node) : nullptr;
    if (callee == nullptr) continue;
    const auto graph = callee->graph()->copy();
    inline_calls(graph->block(), depth + 1);
    if (node->kind() == c10::prim::CallFunction) node->removeInput(0);
    torch::jit::inlineCallTo(node, callee, graph.get());
  }
}

}  // namespace

std::vector<std::shared_ptr<Graph>> inline_forwards(const torch::jit::Module& model) {
  std::unordered_set<const void*> seen;
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const auto& module : model.modules()) {
    if (!seen.insert(module.type().get()).second) continue;
    if (const auto unit = units::unit_forward(*module.type())) graphs.push_back(unit->original.graph());
  }
  if (!units::unit_forward(*model.type())) {
    if (auto* method = model.type()->findMethod("forward"); method != nullptr && method->isGraphFunction()) {
      method->ensure_defined();
      graphs.push_back(torch::jit::toGraphFunction(*method).graph());
    }
  }
  for (const auto& graph : graphs) {
    inline_calls(graph->block(), 0);
    torch::jit::LowerSimpleTuples(graph);
  }
  return graphs;
}

}  // namespace dslaunch::runtime::model::analysis
