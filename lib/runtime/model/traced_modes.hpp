// A trace has the mode in which it was made baked in: dropout's `train`, batch norm's `training`. What was traced in
// train mode is tied to the module's own `training` flag again, so that evaluation switches it off; what was traced in
// eval mode is gone, and is named.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace dslaunch::runtime {

struct TracedModes {
  std::vector<std::string> dropout_off;     // modules whose dropout was traced in eval mode
  std::vector<std::string> statistics_off;  // modules whose batch norm uses its saved statistics
};

// Before the first run of any graph, and before units are intercepted.
TracedModes follow_training_flag(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
