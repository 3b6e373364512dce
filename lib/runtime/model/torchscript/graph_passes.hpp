// All passes over the graphs of models and losses, in the order in which they run.
#pragma once
#include <vector>

#include "runtime/model/passes/graph_pass.hpp"

namespace dslaunch::runtime::model::torchscript {

const std::vector<passes::GraphPass>& graph_passes();

// The passes on a loss from a file.
void run_loss_passes(const torch::jit::Module& loss, const config::Kernels& kernels, at::Device device);

}  // namespace dslaunch::runtime::model::torchscript
