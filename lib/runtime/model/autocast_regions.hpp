// `with torch.autocast(...):` in a scripted model. TorchScript's pass for it is off, since it would cast while it
// compiles and stumbles over our operator; so the region switches autocast on or off at dispatch, operator by operator,
// as it does in eager PyTorch.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <cstddef>

namespace dslaunch::runtime {

// Comes before units are intercepted: their graphs are copied then.
void follow_autocast_regions(const torch::jit::Module& model);

// Around a call of the model: TorchScript runs no exit of a region whose body throws, so the regions that this thread
// has entered in the scope end with it, and its autocast is as before.
class AutocastRegionsScope {
 public:
  AutocastRegionsScope();
  ~AutocastRegionsScope();
  AutocastRegionsScope(const AutocastRegionsScope&) = delete;
  AutocastRegionsScope& operator=(const AutocastRegionsScope&) = delete;

 private:
  const size_t depth_;
};

}  // namespace dslaunch::runtime
