#include "runtime/engine/initial_values.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/element_init.hpp"

namespace dslaunch::runtime {
namespace {

void require_init(const std::optional<config::Init>& init, const std::string& path) {
  if (init) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("model '{}' was exported empty (parameters without values). Set \"init\": "
                              "{{\"seed\": 0, \"std\": 0.02}} in the config to fill it",
                              path));
}

}  // namespace

void require_trainable(const ModelSource& model, const std::string& path) {
  if (model.table().num_trainable() > 0) return;
  const bool none = model.table().parameters.empty();
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("model '{}' has no trainable parameters: {}. Training needs the module before torch.jit.freeze, "
                  "with requires_grad set",
                  path, none ? "it holds no parameters at all, as a frozen module does" : "all of them are frozen"));
}

PrecisionChoice choose_precision(config::Precision precision, at::Device device) {
  if (precision == config::Precision::kAuto) {
    // All GPUs that this build has code for (sm_80 and later) compute in bf16.
    precision = device.is_cuda() ? config::Precision::kBf16 : config::Precision::kFp32;
  }
  DSL_CHECK(precision != config::Precision::kFp16, "fp16 is refused by the config");
  if (precision == config::Precision::kBf16) return {at::kBFloat16, false};
  return {at::kFloat, true};
}

FlatParameters::ReadElements initial_values(const ModelSource& model, std::optional<config::Init> init,
                                            const std::string& path) {
  return [&model, init, path](int parameter, int64_t begin, at::Tensor out) {
    const auto& info = model.table().parameters[parameter];
    if (model.is_empty(parameter)) {
      require_init(init, path);
      init_elements(info.name, info.shape.size(), init->seed, init->std, begin, out);
    } else {
      out.copy_(model.initial_value(parameter).reshape({-1}).narrow(0, begin, out.numel()));
    }
  };
}

void fill_empty_frozen(ModelSource& model, std::optional<config::Init> init, const std::string& path, at::Device device,
                       at::ScalarType dtype) {
  for (size_t i = 0; i < model.table().parameters.size(); ++i) {
    const auto& info = model.table().parameters[i];
    const int index = static_cast<int>(i);
    if (info.trainable || !model.is_empty(index)) continue;
    require_init(init, path);
    at::Tensor values = at::empty({info.numel}, at::kFloat);
    init_elements(info.name, info.shape.size(), init->seed, init->std, 0, values);
    const bool floating = at::isFloatingType(info.dtype);
    model.set_frozen_value(index, values.view(info.shape).to(device, floating ? dtype : info.dtype));
  }
}

}  // namespace dslaunch::runtime
