// `with torch.autocast(...):` in a scripted model. TorchScript's autocast pass is off for models (model_file.hpp): it
// would insert casts at compile time and does not support our operator; instead the region switches autocast on or off
// at dispatch, operator by operator, as in eager PyTorch.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <cstddef>

namespace dslaunch::runtime::model::rewrites {

// Call before units are intercepted: interception copies their graphs.
void apply_autocast_regions(const torch::jit::Module& model);

// Wraps a call of the model: TorchScript does not run a region's exit when its body throws, so the regions that this
// thread entered within the scope end with the scope, and the thread's autocast state is restored.
class AutocastRegionsScope {
 public:
  AutocastRegionsScope();
  ~AutocastRegionsScope();
  AutocastRegionsScope(const AutocastRegionsScope&) = delete;
  AutocastRegionsScope& operator=(const AutocastRegionsScope&) = delete;

 private:
  const size_t depth_;
};

}  // namespace dslaunch::runtime::model::rewrites
