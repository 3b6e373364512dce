// PyTorch's autocast around a call of the model ("amp" O1, "torch_autocast"): parameters stay fp32 and each operator
// computes in the type that suits it. Applies to the calling thread and one device type, while the scope lives.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace dslaunch::runtime::precision {

class AutocastScope {
 public:
  // Without `dtype` the scope does nothing.
  AutocastScope(at::Device device, std::optional<at::ScalarType> dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const at::DeviceType device_;
  const bool is_on_;
  bool was_enabled_ = false, was_caching_ = false;
  at::ScalarType dtype_before_ = at::kFloat;
};

}  // namespace dslaunch::runtime::precision
