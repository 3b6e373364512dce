// A trace has the mode in which it was made baked in: dropout's `train`, batch norm's `training`. What was traced in
// train mode is tied to the module's own `training` flag again, so that evaluation switches it off; what was traced in
// eval mode is gone, and is named. And it forgets torch.no_grad(): what its forward keeps in buffers must be cut from
// its gradients, or every step would hold, and go through, the graphs of all steps before it.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "runtime/state/parameter_place.hpp"

namespace dslaunch::runtime {

// By their paths; an empty one: the model itself.
struct TracedModes {
  std::vector<std::string> dropout_off;     // modules whose dropout was traced in eval mode
  std::vector<std::string> statistics_off;  // modules whose batch norm uses its saved statistics
  std::vector<std::string> averages_fixed;  // norms that look like momentum=None, traced with one batch's factor
  std::vector<std::string> draws_kept;      // modules that drop by draws of their own, which no flag decides any more
};

// Before the first run of any graph, and before units are intercepted. What is written of the module afterwards follows
// its flag too.
TracedModes follow_training_flag(const torch::jit::Module& model);

// Buffers and frozen parameters of traced modules.
std::vector<ParameterPlace> find_traced_state(const torch::jit::Module& model);
// After a forward: what it left in `state` is a value, without a past.
void drop_history(const std::vector<ParameterPlace>& state);

}  // namespace dslaunch::runtime
