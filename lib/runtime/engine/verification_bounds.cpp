#include "runtime/engine/verification_bounds.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace dslaunch::runtime {
namespace {

// What the order of additions and the type in which gradients travel may do to a gradient, relative. A sum over ranks
// in bf16 rounds at 2^-9 for each addition; there remains a margin of some additions.
double error_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return 1.0 / 32;
    case at::kHalf:
      return 1.0 / 128;
    default:
      return 1e-5;
  }
}

double largest_model_error(const ModelSource& model, const precision::ModelDtypes& dtypes) {
  double error = error_of(at::kFloat);
  for (const auto& parameter : model.table().parameters) {
    if (parameter.trainable) error = std::max(error, error_of(dtypes(parameter.name, parameter.dtype)));
  }
  return error;
}

double error_of_gradients(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine) {
  double error = largest_model_error(model, engine.dtypes);
  for (const auto& type : {config.communication_data_type, config.grad_accum_dtype, config.autocast}) {
    if (type) error = std::max(error, error_of(precision::to_torch(*type)));
  }
  return error;
}

// Other instructions for other lengths; and masters that are rounded to what 16 bits hold, where "amp" O3 keeps no
// more.
double rounding_of(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine) {
  return config.fp32_master ? 1e-6 : largest_model_error(model, engine.dtypes);
}

// Gradients are rounded to the type that travels, and small sums may be what large ones leave.
double moment_rounding_of(const config::JobConfig& config, double rounding) {
  const bool is_low = config.precision == config::Precision::kBf16 || config.precision == config::Precision::kFp16;
  return is_low ? 0x1p-8 : rounding;
}

void refuse_quantized(const config::Zero& zero) {
  if (!zero.quantized_weights && !zero.quantized_gradients) return;
  throw UserError(
      ExitCode::kBadInput,
      "--verify: zero_quantized_weights and zero_quantized_gradients round what travels to 8 bits and less, "
      "so the run is not one with an unsharded replica by design; verify without them");
}

}  // namespace

VerificationBounds bounds_of(const ModelSource& model, const config::JobConfig& config, const EngineOptions& engine) {
  refuse_quantized(config.zero);
  const double rounding = rounding_of(model, config, engine);
  return {.gradient = error_of_gradients(model, config, engine),
          .rounding = rounding,
          .moment_rounding = moment_rounding_of(config, rounding)};
}

}  // namespace dslaunch::runtime
