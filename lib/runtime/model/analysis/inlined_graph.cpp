#include "runtime/model/analysis/inlined_graph.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Node;

constexpr int kMaxDepth = 64;  // of calls

bool has_calls(const Block* block) {
  for (const Node* node : block->nodes()) {
    if (node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction) return true;
    for (const Block* inner : node->blocks()) {
      if (has_calls(inner)) return true;
    }
  }
  return false;
}

}  // namespace

void bind_attribute(const Node* node, ObjectOfValue& objects) {
  auto owner = objects.find(node->input(0));
  if (owner == objects.end()) return;
  const auto value = owner->second->getAttr(node->s(c10::attr::name));
  if (value.isObject()) objects[node->output()] = value.toObject();
}

std::shared_ptr<torch::jit::Graph> inlined_forward(const torch::jit::Module& module) {
  auto& method = module.get_method("forward").function();
  method.ensure_defined();
  auto graph = torch::jit::toGraphFunction(method).graph()->copy();
  // With the optimising executor off, one pass inlines one level of calls.
  for (int level = 0; level < kMaxDepth && has_calls(graph->block()); ++level) torch::jit::Inline(*graph);
  // Resolves branches that depend on arguments which this model leaves at their constants: an embedding without
  // max_norm does not write to its table.
  torch::jit::ConstantPropagationImmutableTypes(graph);
  return graph;
}

}  // namespace dslaunch::runtime::model::analysis
