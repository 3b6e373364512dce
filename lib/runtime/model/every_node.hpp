// Every node that a run of a model may meet, once: of all methods, of the forwards that were set aside when their units
// were intercepted, of the functions that these call, of branches and loops, of what is forked.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

namespace dslaunch::runtime {

// `change` may alter the node, put others beside it, and destroy it; it is not called for what it puts there.
void for_every_node(const torch::jit::Module& model, const std::function<void(torch::jit::Node*)>& change);

}  // namespace dslaunch::runtime
