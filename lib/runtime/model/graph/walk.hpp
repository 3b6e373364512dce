// Visits once every node that a run of a model may execute: of all methods, of the original forwards of intercepted
// units, of the functions that these call, of branches and loops, of forked subgraphs.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

namespace dslaunch::runtime::model::graph {

// `change` may alter the node, insert others beside it, and destroy it; it is not called for the nodes that it inserts.
void for_every_node(const torch::jit::Module& model, const std::function<void(torch::jit::Node*)>& change);

}  // namespace dslaunch::runtime::model::graph
