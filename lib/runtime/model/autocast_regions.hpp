// `with torch.autocast(...):` in a scripted model. TorchScript's pass for it is off, since it would cast while it
// compiles and stumbles over our operator; so the region switches autocast on or off at dispatch, operator by operator,
// as it does in eager PyTorch.
#pragma once
#include <torch/csrc/jit/api/module.h>

namespace dslaunch::runtime {

// Comes before units are intercepted: their graphs are copied then.
void follow_autocast_regions(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
