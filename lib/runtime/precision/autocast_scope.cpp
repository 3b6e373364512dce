#include "runtime/precision/autocast_scope.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

#include "base/format.hpp"

namespace dslaunch::runtime::precision {
namespace {

// Runs an operator with its floating-point tensors in autocast's type.
void in_low_precision(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    value = at::autocast::cached_cast(dtype, value.toTensor(), at::kCPU);
  }
  op.callBoxed(stack);
}

// A trace holds convolutions as `aten::_convolution`, which PyTorch's autocast supports on GPUs but not on CPUs: there
// the bf16 output of the layer before a convolution would meet fp32 weights.
class TracedConvolutions {
 public:
  TracedConvolutions() {
    for (const char* overload : {"", "deprecated"}) {
      const auto op = c10::Dispatcher::singleton().findSchema({"aten::_convolution", overload});
      if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) continue;
      const std::string name = *overload ? fmt::format("_convolution.{}", overload) : "_convolution";
      library_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&in_low_precision>());
    }
  }

 private:
  torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCPU, __FILE__, __LINE__};
};

}  // namespace

AutocastScope::AutocastScope(at::Device device, std::optional<at::ScalarType> dtype)
    : device_(device.type()), is_on_(dtype.has_value()) {
  if (!is_on_) return;
  static const TracedConvolutions traced_convolutions;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_caching_ = at::autocast::is_autocast_cache_enabled();
  dtype_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *dtype);
  // The cache keeps casts of leaf parameters. Our parameters are outputs of the gather and change addresses, so the
  // cache would only keep memory alive.
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!is_on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(was_caching_);
}

}  // namespace dslaunch::runtime::precision
