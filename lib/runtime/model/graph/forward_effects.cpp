
#include <string_view>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Node;

// Runs code that is not in the graph.
bool escapes_graph(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction || kind == "prim::fork" ||
         kind == "prim::awaitable" || kind == "prim::rpc_async" || node->hasAttribute(c10::attr::Subgraph);
}

bool computes_gradients(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return kind == "aten::grad" || kind == "aten::backward";
}

}  // namespace

ForwardEffects scan_forward_effects(const FlatGraph& flat) {
  const Aliases aliases(flat);
  const auto arguments = aliases.written_arguments();
  const auto reads_unknown_module = [&](const Node* node) {
    return node->kind() == c10::prim::GetAttr && node->input(0)->type()->is_module() &&
           flat.objects.count(node->input(0)) == 0;
  };
  const auto* block = flat.graph->block();
  return {.is_analyzable = !any_node(block, escapes_graph) && !any_node(block, reads_unknown_module),
          .changes_tensors = arguments.tensors,
          .changes_containers = arguments.containers,
          .calls_autograd = any_node(block, computes_gradients),
          .written = aliases.written_attributes()};
}

}  // namespace dslaunch::runtime::model::graph
