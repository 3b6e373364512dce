// The one walk over nodes: of a block with the blocks inside it, or of all that a run of a model may execute.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>

namespace dslaunch::runtime::model::graph {

// The nodes of a block in order, those of branches and loops before their node. `visit` may alter the node, insert
// others beside it, and destroy it; it is not called for the nodes that it inserts.
template <class AnyBlock, class Visit>
void for_each_node(AnyBlock* block, const Visit& visit) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    auto* const node = *it++;
    for (auto* inner : node->blocks()) for_each_node(inner, visit);
    visit(node);
  }
}

// Of a block, or a node and those inside it.
template <class Matches>
bool any_node(const torch::jit::Block* block, const Matches& matches);
template <class Matches>
bool any_node(const torch::jit::Node* node, const Matches& matches) {
  const auto blocks = node->blocks();
  return matches(node) || std::any_of(blocks.begin(), blocks.end(),
                                      [&](const torch::jit::Block* block) { return any_node(block, matches); });
}
template <class Matches>
bool any_node(const torch::jit::Block* block, const Matches& matches) {
  return std::any_of(block->nodes().begin(), block->nodes().end(),
                     [&](const torch::jit::Node* node) { return any_node(node, matches); });
}

// The same for every node that a run of a model may execute, once: of all methods, of the original forwards of
// intercepted units, of the functions that these call, of forked subgraphs.
void for_every_node(const torch::jit::Module& model, const std::function<void(torch::jit::Node*)>& visit);

// The functions of these nodes, each once, after those that it calls.
void for_every_function(const torch::jit::Module& model, const std::function<void(torch::jit::GraphFunction&)>& visit);

}  // namespace dslaunch::runtime::model::graph
