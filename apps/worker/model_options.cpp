#include "model_options.hpp"

#include <optional>

#include "device.hpp"

namespace dslaunch::worker {
namespace {

namespace inference = runtime::engine::inference;

std::optional<at::ScalarType> dtype_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return name == "bf16" ? at::kBFloat16 : name == "fp16" ? at::kHalf : at::kFloat;
}

std::optional<runtime::model::WeightType> weight_type_named(const std::string& name) {
  using enum runtime::model::WeightType;
  for (const auto type : {kInt8, kFp8, kInt4}) {
    if (name == runtime::model::weight_type_name(type)) return type;
  }
  return std::nullopt;
}

}  // namespace

at::Device open_device_of(const command_line::OptionTable& options) {
  const rendezvous::LaunchEnv alone;
  return open_device(options.has("--device") ? options.text("--device") : "auto", alone);
}

inference::ModelSource model_source(const command_line::OptionTable& options, const runtime::device::Device& device,
                                    const std::string& dtype) {
  return {.path = options.source,
          .weights = options.text("--weights"),
          .tokenizer = options.text("--tokenizer"),
          .nvme_path = options.text("--nvme_path"),
          .device = device.at(),
          .kernels = device.kernels(),
          .dtype = dtype_named(dtype),
          .weight_type = weight_type_named(options.text("--weight_dtype"))};
}

inference::TextModelOptions text_model_options(const command_line::OptionTable& options) {
  return {.uses_cache = !options.has("--no_cache"), .cache_bytes = options.bytes("--cache_bytes", 0)};
}

}  // namespace dslaunch::worker
