// Runs graphs as written, operator by operator: TorchScript's optimising executor specialises and differentiates them
// by its own formulas, which round differently in bf16 and fp16, and only from some later call on.
//
// The executor's switch is thread-local. A model's calls come from the training thread, from autograd's threads
// (recomputation on a GPU), and from TorchScript's pool (code that a model forks, and code that follows a wait).
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace dslaunch::runtime::model::torchscript {

// The optimiser is off on this thread during the lifetime of this object.
class PlainExecution {
  torch::jit::GraphOptimizerEnabledGuard off_{false};
};

// Every thread that runs code forked by the model switches the optimiser off for itself. Call before units are
// intercepted: interception copies their graphs.
void disable_optimizer_in_forks(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::torchscript
