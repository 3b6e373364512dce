// Graphs run as they are written, operator by operator: TorchScript's optimising executor specialises and
// differentiates them by formulas of its own, which round otherwise in bf16 and fp16, and from another call on than the
// one before.
//
// Its switch is each thread's own. The calls of a model come from the thread that trains, from autograd's threads
// (recomputation on a GPU), and from TorchScript's pool (what a model forks, and what follows a wait).
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace dslaunch::runtime {

// Off on this thread while it lives.
class PlainExecution {
  torch::jit::GraphOptimizerEnabledGuard off_{false};
};

// Whatever thread runs what the model forks switches the optimiser off for itself. Comes before units are intercepted:
// their graphs are copied then.
void run_forks_plainly(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
