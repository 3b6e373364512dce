#include "runtime/optim/flat_optimizer.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/optim/device_functions.hpp"
#include "runtime/optim/host_update.hpp"
#include "runtime/optim/parallel_ranges.hpp"

namespace dslaunch::runtime::optim {
namespace {

constexpr int64_t kGrain = 32768;  // elements that are worth a thread

void check_tensor(const at::Tensor& tensor, const at::Tensor& master, const char* name) {
  DSL_CHECK(tensor.defined(), fmt::format("the {} of a shard is missing", name));
  DSL_CHECK(tensor.numel() == master.numel() && tensor.device() == master.device() && tensor.is_contiguous(),
            fmt::format("the {} of a shard ({} elements) does not fit its master ({} elements)", name, tensor.numel(),
                        master.numel()));
}

void check_scalar(const at::Tensor& scalar, at::ScalarType type, at::Device device, const char* name) {
  if (!scalar.defined()) return;
  DSL_CHECK(scalar.numel() == 1 && scalar.scalar_type() == type && scalar.device() == device,
            fmt::format("the {} is one {} on the shard's device", name, c10::toString(type)));
}

void check_inputs(const StepInputs& inputs, at::Device device) {
  DSL_CHECK(!inputs.rates.empty() && (inputs.applied_steps.defined() || inputs.rates.size() == 1),
            "a step needs its rates, and a count of applied steps to choose among several");
  for (size_t i = 0; i < inputs.rates.size(); ++i) {
    DSL_CHECK(inputs.rates[i].step >= 1, "optimizer steps are counted from 1");
    DSL_CHECK(inputs.rates[i].step == inputs.rates[0].step + static_cast<int64_t>(i), "rates of consecutive steps");
  }
  check_scalar(inputs.gradient_factor, at::kFloat, device, "gradient factor");
  check_scalar(inputs.skip, at::kFloat, device, "skip flag");
  check_scalar(inputs.applied_steps, at::kLong, device, "count of applied steps");
}

void check_shard(const ShardTensors& shard, const StepInputs& inputs, size_t num_moments) {
  check_inputs(inputs, shard.master.device());
  check_tensor(shard.master, shard.master, "master");
  check_tensor(shard.gradient, shard.master, "gradient");
  DSL_CHECK(shard.moments.size() == num_moments,
            fmt::format("the optimizer keeps {} moments, the shard has {}", num_moments, shard.moments.size()));
  for (const at::Tensor& moment : shard.moments) {
    check_tensor(moment, shard.master, "moment");
    DSL_CHECK(moment.scalar_type() == at::kFloat, "moments are fp32");
  }
  DSL_CHECK(shard.master.scalar_type() == at::kFloat && shard.gradient.scalar_type() == at::kFloat,
            "master and gradient are fp32");
  if (shard.low_precision.defined()) {
    check_tensor(shard.low_precision, shard.master, "low-precision copy");
    const auto type = shard.low_precision.scalar_type();
    DSL_CHECK(type == at::kBFloat16 || type == at::kHalf, "a low-precision copy is bf16 or fp16");
  }
}

float host_factor(const StepInputs& inputs) {
  return inputs.gradient_factor.defined() ? *inputs.gradient_factor.const_data_ptr<float>() : 1.0F;
}

// Of host tensors.
bool is_skipped(const StepInputs& inputs) {
  return inputs.skip.defined() && *inputs.skip.const_data_ptr<float>() != 0.0F;
}

const StepRates& host_rates(const StepInputs& inputs) {
  if (!inputs.applied_steps.defined()) return inputs.rates[0];
  const int64_t row = *inputs.applied_steps.const_data_ptr<int64_t>() + 1 - inputs.rates[0].step;
  DSL_CHECK(row >= 0 && row < static_cast<int64_t>(inputs.rates.size()),
            fmt::format("step {} is none of the {} whose rates are there, from step {}", row + inputs.rates[0].step,
                        inputs.rates.size(), inputs.rates[0].step));
  return inputs.rates[static_cast<size_t>(row)];
}

// `coefficients_of` makes one entry of StepInputs::rates into Coefficients.
template <class Coefficients, class Make>
DeviceCoefficients<Coefficients> device_coefficients(const StepInputs& inputs, at::Device device,
                                                     const Make& coefficients_of) {
  DeviceCoefficients<Coefficients> out{.value = coefficients_of(inputs.rates[0]), .base = inputs.rates[0].step - 1};
  if (!inputs.applied_steps.defined()) return out;
  // Pinned, so that the copy waits for nothing; LibTorch keeps the memory until the copy is done.
  const auto bytes = static_cast<int64_t>(inputs.rates.size() * sizeof(Coefficients));
  at::Tensor rows = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  auto* row = static_cast<Coefficients*>(rows.mutable_data_ptr());
  for (const StepRates& rates : inputs.rates) *row++ = coefficients_of(rates);
  out.table = rows.to(device, /*non_blocking=*/true);
  return out;
}

host::LowPrecision low_precision_type(const at::Tensor& tensor) {
  if (!tensor.defined()) return host::LowPrecision::kNone;
  return tensor.scalar_type() == at::kBFloat16 ? host::LowPrecision::kBFloat16 : host::LowPrecision::kFloat16;
}

uint16_t* low_precision_data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<uint16_t*>(tensor.mutable_data_ptr()) : nullptr;
}

uint16_t* advance(uint16_t* low_precision, int64_t begin) {
  return low_precision == nullptr ? nullptr : low_precision + begin;
}

class Adam final : public FlatOptimizer {
 public:
  explicit Adam(const config::Optimizer& settings) : settings_(settings) {}

  const std::vector<std::string>& moment_names() const override {
    static const std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
    return names;
  }

  void step(const ShardTensors& shard, const StepInputs& inputs) const override {
    check_shard(shard, inputs, moment_names().size());
    if (shard.master.numel() == 0) return;
    const auto coefficients_of = [&](const StepRates& r) { return adam_coefficients(settings_, r.lr, r.step); };
    if (const at::Device device = shard.master.device(); device.is_cuda()) {
      const auto chosen = device_coefficients<AdamCoefficients>(inputs, device, coefficients_of);
      return device_functions().adam(shard, chosen, inputs);
    }
    if (is_skipped(inputs)) return;
    const AdamCoefficients coefficients = coefficients_of(host_rates(inputs));
    const host::AdamRange all = {
        .master = shard.master.mutable_data_ptr<float>(),
        .gradient = shard.gradient.const_data_ptr<float>(),
        .exp_avg = shard.moments[0].mutable_data_ptr<float>(),
        .exp_avg_sq = shard.moments[1].mutable_data_ptr<float>(),
        .low_precision = low_precision_data(shard.low_precision),
        .low_precision_type = low_precision_type(shard.low_precision),
        .count = shard.master.numel(),
    };
    const float factor = host_factor(inputs);
    const auto set = host::best_instruction_set();
    parallel_ranges(all.count, kGrain, [&](int64_t begin, int64_t end) {
      host::AdamRange range = all;
      range.master += begin;
      range.gradient += begin;
      range.exp_avg += begin;
      range.exp_avg_sq += begin;
      range.low_precision = advance(range.low_precision, begin);
      range.count = end - begin;
      host::update_adam(range, coefficients, factor, set);
    });
  }

 private:
  const config::Optimizer settings_;
};

class Sgd final : public FlatOptimizer {
 public:
  explicit Sgd(const config::Optimizer& settings) : settings_(settings) {
    if (settings.momentum != 0.0) moment_names_.emplace_back("momentum");
  }

  const std::vector<std::string>& moment_names() const override { return moment_names_; }

  void step(const ShardTensors& shard, const StepInputs& inputs) const override {
    check_shard(shard, inputs, moment_names_.size());
    if (shard.master.numel() == 0) return;
    const auto coefficients_of = [&](const StepRates& r) { return sgd_coefficients(settings_, r.lr, r.step); };
    if (const at::Device device = shard.master.device(); device.is_cuda()) {
      const auto chosen = device_coefficients<SgdCoefficients>(inputs, device, coefficients_of);
      return device_functions().sgd(shard, chosen, inputs);
    }
    if (is_skipped(inputs)) return;
    const SgdCoefficients coefficients = coefficients_of(host_rates(inputs));
    const host::SgdRange all = {
        .master = shard.master.mutable_data_ptr<float>(),
        .gradient = shard.gradient.const_data_ptr<float>(),
        .momentum = moment_names_.empty() ? nullptr : shard.moments[0].mutable_data_ptr<float>(),
        .low_precision = low_precision_data(shard.low_precision),
        .low_precision_type = low_precision_type(shard.low_precision),
        .count = shard.master.numel(),
    };
    const float factor = host_factor(inputs);
    const auto set = host::best_instruction_set();
    parallel_ranges(all.count, kGrain, [&](int64_t begin, int64_t end) {
      host::SgdRange range = all;
      range.master += begin;
      range.gradient += begin;
      if (range.momentum != nullptr) range.momentum += begin;
      range.low_precision = advance(range.low_precision, begin);
      range.count = end - begin;
      host::update_sgd(range, coefficients, factor, set);
    });
  }

 private:
  const config::Optimizer settings_;
  std::vector<std::string> moment_names_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_flat_optimizer(const config::Optimizer& settings) {
  if (settings.type != config::OptimizerType::kSgd) return std::make_unique<Adam>(settings);
  if (settings.nesterov && (settings.momentum <= 0.0 || settings.dampening != 0.0)) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("optimizer.params.nesterov needs a momentum above 0 and a dampening of 0, but momentum "
                                "is {} and dampening is {}.",
                                settings.momentum, settings.dampening));
  }
  return std::make_unique<Sgd>(settings);
}

}  // namespace dslaunch::runtime::optim
