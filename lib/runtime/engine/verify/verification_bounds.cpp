#include "runtime/engine/verify/verification_bounds.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/enum_names.hpp"

namespace dslaunch::runtime::engine::verify {
namespace {

double unit_roundoff(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0x1p-24;
}

// The relative error that the order of additions inside an operator may cause in a gradient: some roundings in fp32,
// one in shorter dtypes, which accumulate in fp32.
double error_of(at::ScalarType type) {
  return std::max(1e-5, unit_roundoff(type));
}

double largest_model_error(const model::Model& model, const precision::ModelDtypes& dtypes) {
  double error = error_of(at::kFloat);
  for (const auto& parameter : model.facts.whole_table().parameters) {
    if (parameter.trainable) error = std::max(error, error_of(dtypes(parameter.name, parameter.dtype)));
  }
  return error;
}

double error_of_gradients(const model::Model& model, const config::JobConfig& config,
                          const step::EngineOptions& engine) {
  double error = largest_model_error(model, engine.dtypes);
  for (const auto& type : {config.communication_data_type, config.grad_accum_dtype, config.autocast}) {
    if (type) error = std::max(error, error_of(precision::to_torch(*type)));
  }
  return error;
}

// Different lengths use different instructions; and "amp" O3, which keeps only 16 bits, rounds masters to 16 bits.
double rounding_of(const model::Model& model, const config::JobConfig& config, const step::EngineOptions& engine) {
  return config.fp32_master ? 1e-6 : largest_model_error(model, engine.dtypes);
}

at::ScalarType coarser(at::ScalarType a, at::ScalarType b) {
  return unit_roundoff(a) < unit_roundoff(b) ? b : a;
}

at::ScalarType wire_dtype(const model::Model& model, const config::JobConfig& config,
                          const step::EngineOptions& engine) {
  if (config.communication_data_type) return precision::to_torch(*config.communication_data_type);
  at::ScalarType out = at::kFloat;
  for (const auto& parameter : model.facts.whole_table().parameters) {
    if (parameter.trainable) out = coarser(out, engine.dtypes(parameter.name, parameter.dtype));
  }
  return out;
}

// A sum of n numbers in any order is off by at most n roundings of the sum of their sizes. Communicated values are
// rounded once more when packed and once when divided by the number of ranks; the run sums the micro batches of each
// rank, the replica those of all ranks.
double error_of_parts(at::ScalarType wire, at::ScalarType sums, int64_t num_ranks, int64_t accumulation) {
  const auto ranks = static_cast<double>(num_ranks), steps = static_cast<double>(accumulation);
  return unit_roundoff(wire) * (ranks + 2) + unit_roundoff(sums) * (steps + steps * ranks);
}

// The smallest fp16 number is 2^-24: half of it for every part that is divided by the ranks and multiplied again.
double smallest_error(at::ScalarType wire, int64_t num_ranks, int64_t accumulation) {
  if (wire != at::kHalf) return 0;
  return 0x1p-25 * static_cast<double>(num_ranks * num_ranks * accumulation);
}

// The largest number of stages that hold one parameter: each adds up its own part of the gradient.
int64_t parts_of_tied(const model::Model& model) {
  size_t parts = 1;
  if (!model.facts.stage) return 1;
  for (const auto& tied : model.facts.stage->plan.tied) parts = std::max(parts, tied.stages.size());
  return static_cast<int64_t>(parts);
}

GradientBound gradient_bound(const model::Model& model, const config::JobConfig& config,
                             const step::EngineOptions& engine, int num_ranks) {
  const auto wire = wire_dtype(model, config, engine);
  const auto sums = config.grad_accum_dtype ? precision::to_torch(*config.grad_accum_dtype) : at::kFloat;
  const int64_t accumulation = config.batch.accumulation * parts_of_tied(model);
  return {.relative = error_of_gradients(model, config, engine),
          .of_parts = error_of_parts(wire, sums, num_ranks, accumulation),
          .absolute = smallest_error(wire, num_ranks, accumulation),
          .splits_sums = config.tensor_parallel.size > 1};
}

void refuse_quantized(const config::Zero& zero) {
  if (!zero.quantized_weights && !zero.quantized_gradients) return;
  throw UserError(ExitCode::kBadInput,
                  "--verify: zero_quantized_weights and zero_quantized_gradients quantize communication to 8 bits or "
                  "fewer, so the run differs from an unsharded replica by design; verify without them");
}

// Each tensor rank rounds its part of a sum, where the replica rounds the sum: layer by layer, in forward and backward.
void refuse_rounded_parts(const config::JobConfig& config, double error) {
  if (config.tensor_parallel.size <= 1 || error <= error_of(at::kFloat)) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("--verify with {} tensor ranks in 16 bits: each rank rounds its parts of sums, so that no "
                  "replica has the same gradients; verify in fp32 (--set bf16.enabled=false or "
                  "fp16.enabled=false)",
                  config.tensor_parallel.size));
}

void refuse_own_state(const config::Optimizer& optimizer) {
  using enum config::OptimizerType;
  if (config::is_one_bit(optimizer.type)) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("--verify: ranks of {} exchange one bit for each element, so that no replica has the "
                                "same parameters; verify with Adam or Lamb",
                                config::name_of(config::kOptimizerTypes, optimizer.type)));
  }
  if (optimizer.type != kAdafactor && optimizer.type != kAdamW8bit) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("--verify: {} keeps state of its own, which is not copied for the updates that bound the "
                              "replica's; verify with another optimizer",
                              config::name_of(config::kOptimizerTypes, optimizer.type)));
}

}  // namespace

VerificationBounds bounds_of(const model::Model& model, const config::JobConfig& config,
                             const step::EngineOptions& engine, int num_ranks) {
  refuse_quantized(config.zero);
  refuse_own_state(config.optimizer);
  refuse_rounded_parts(config, error_of_gradients(model, config, engine));
  const bool is_muon = config.optimizer.type == config::OptimizerType::kMuon;
  return {.gradient = gradient_bound(model, config, engine, num_ranks),
          .rounding = rounding_of(model, config, engine),
          .is_spread = is_muon,
          .has_norms = is_muon || config.optimizer.type == config::OptimizerType::kLamb};
}

}  // namespace dslaunch::runtime::engine::verify
