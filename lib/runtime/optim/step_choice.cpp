#include "runtime/optim/step_choice.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::optim {
namespace {

void check_tensor(const at::Tensor& tensor, const at::Tensor& master, const char* name) {
  DSL_CHECK(tensor.defined(), fmt::format("the {} of a span is missing", name));
  DSL_CHECK(tensor.numel() == master.numel() && tensor.device() == master.device() && tensor.is_contiguous(),
            fmt::format("the {} of a span ({} elements) does not fit its master ({} elements)", name, tensor.numel(),
                        master.numel()));
}

host::ElementType element_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return host::ElementType::kBFloat16;
    case at::kHalf:
      return host::ElementType::kFloat16;
    default:
      return host::ElementType::kFloat32;
  }
}

void check_scalar(const at::Tensor& scalar, at::ScalarType type, at::Device device, const char* name) {
  if (!scalar.defined()) return;
  DSL_CHECK(scalar.numel() == 1 && scalar.scalar_type() == type && scalar.device() == device,
            fmt::format("the {} is one {} on the arrays' device", name, c10::toString(type)));
}

}  // namespace

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

void check_state(const SpanState& state, at::Device device, size_t num_groups, size_t num_moments) {
  const auto& [span, arrays] = state;
  DSL_CHECK(span.optimizer_group >= 0 && static_cast<size_t>(span.optimizer_group) < num_groups,
            fmt::format("a span of optimizer group {}, of which there are {}", span.optimizer_group, num_groups));
  check_tensor(arrays.master, arrays.master, "master");
  DSL_CHECK(arrays.master.device() == device,
            fmt::format("a step over spans on {} and on {}", device.str(), arrays.master.device().str()));
  check_tensor(arrays.gradient, arrays.master, "gradient");
  DSL_CHECK(arrays.moments.size() == num_moments,
            fmt::format("the optimizer keeps {} moments, the span has {}", num_moments, arrays.moments.size()));
  for (const at::Tensor& moment : arrays.moments) {
    check_tensor(moment, arrays.master, "moment");
    DSL_CHECK(moment.scalar_type() == at::kFloat, "moments are fp32");
  }
  DSL_CHECK(arrays.master.scalar_type() == at::kFloat, "a master is fp32");
  DSL_CHECK(
      is_gradient_type(arrays.gradient.scalar_type()),
      fmt::format("a gradient in {} instead of fp32, bf16 or fp16", c10::toString(arrays.gradient.scalar_type())));
  if (arrays.master_is_parameter()) return;
  check_tensor(arrays.low_precision, arrays.master, "low-precision copy");
  const auto copy = arrays.low_precision.scalar_type();
  DSL_CHECK(copy == at::kBFloat16 || copy == at::kHalf, "a low-precision copy is bf16 or fp16");
}

bool is_skipped(const StepInputs& inputs) {
  return inputs.skip.defined() && *inputs.skip.const_data_ptr<float>() != 0.0F;
}

float gradient_factor(const StepInputs& inputs) {
  return inputs.gradient_factor.defined() ? *inputs.gradient_factor.const_data_ptr<float>() : 1.0F;
}

const StepRates& select_rates(const StepInputs& inputs) {
  if (!inputs.applied_steps.defined()) return inputs.rates[0];
  const int64_t row = *inputs.applied_steps.const_data_ptr<int64_t>() + 1 - inputs.rates[0].step;
  DSL_CHECK(row >= 0 && row < static_cast<int64_t>(inputs.rates.size()),
            fmt::format("step {} is not one of the {} steps with known rates, from step {}", row + inputs.rates[0].step,
                        inputs.rates.size(), inputs.rates[0].step));
  return inputs.rates[static_cast<size_t>(row)];
}

void write_unless_skipped(const at::Tensor& to, const at::Tensor& values, const at::Tensor& skip) {
  to.copy_(skip.defined() ? at::where(skip != 0, to, values.to(to.scalar_type())) : values);
}

void write_parameter(const StateArrays& arrays, const at::Tensor& values, const at::Tensor& skip) {
  write_unless_skipped(arrays.master, values, skip);
  if (arrays.low_precision.defined()) write_unless_skipped(arrays.low_precision, values, skip);
}

host::Range host_range(const StateArrays& arrays) {
  host::Range range{.master = arrays.master.mutable_data_ptr<float>(),
                    .gradient = arrays.gradient.const_data_ptr(),
                    .gradient_type = element_type(arrays.gradient),
                    .count = arrays.master.numel()};
  for (size_t i = 0; i < arrays.moments.size(); ++i) range.moments[i] = arrays.moments[i].mutable_data_ptr<float>();
  if (arrays.low_precision.defined()) {
    range.low_precision = static_cast<uint16_t*>(arrays.low_precision.mutable_data_ptr());
    range.low_precision_type = element_type(arrays.low_precision);
  }
  return range;
}

}  // namespace dslaunch::runtime::optim
