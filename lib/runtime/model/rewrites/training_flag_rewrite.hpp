// A trace has baked in the mode in which it was made: dropout's `train`, batch norm's `training`. Operators traced in
// train mode are tied to the module's own `training` flag again, so that evaluation switches them off; what was traced
// in eval mode is lost, and is reported. A trace also loses torch.no_grad(): values that its forward keeps in buffers
// must be detached, or every step would hold, and backpropagate through, the graphs of all earlier steps.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::rewrites {

// Module paths; an empty path: the model itself.
struct TracedModes {
  std::vector<std::string> dropout_off;     // modules whose dropout was traced in eval mode
  std::vector<std::string> statistics_off;  // modules whose batch norm uses its saved statistics
  std::vector<std::string> averages_fixed;  // norms that look like momentum=None, traced with one batch's factor
  // Modules that drop by random draws of their own, which no flag controls any more.
  std::vector<std::string> unconditional_masks;
};

// Call before the first run of any graph, and before units are intercepted. Files later written from the module follow
// its flag too.
TracedModes bind_training_flag(const torch::jit::Module& model);

// Whether torch.jit.trace made the module, as a whole or with scripted modules deeper in it; a scripted one whose
// classes have neither annotations nor constants nor calls of torch.nn.functional may be taken for one as well.
bool is_trace(const torch::jit::Module& model);

// Buffers and frozen parameters of traced modules.
std::vector<ParameterLocation> find_traced_state(const torch::jit::Module& model);
// Call after a forward: detaches the values that it left in `state`.
void drop_history(const std::vector<ParameterLocation>& state);

}  // namespace dslaunch::runtime::model::rewrites
