// The forwards of a model that run, each as one graph.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace dslaunch::runtime::model::analysis {

// Of the model, and the original ones of intercepted units. Inlines their calls of methods and functions in place,
// except for those of units, and takes tuples apart. Nothing changes where it was done before.
std::vector<std::shared_ptr<torch::jit::Graph>> inline_forwards(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::analysis
