#include "runtime/engine/diagnosis/finite_check.hpp"

#include <ATen/ATen.h>

#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/state/local_slice_layout.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::diagnosis {
namespace {

// "element [2, 0] is nan": describes the first element of `values` for which `mask` is set; of those of a parameter, by
// its place in the whole one.
std::string describe_first(const at::Tensor& values, const at::Tensor& mask, const ParameterInfo* parameter) {
  auto element = mask.reshape({-1}).to(at::kByte).argmax().item<int64_t>();
  // "nan", "inf" or "-inf"
  const std::string value = format_loss(values.reshape({-1})[element].to(at::kDouble).item<double>());
  if (values.dim() == 0) return fmt::format("is {}", value);
  const auto shape = parameter != nullptr ? parameter->whole_shape() : values.sizes().vec();
  if (parameter != nullptr) element = LocalSliceLayout(*parameter).to_whole(element);
  std::vector<int64_t> at(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    at[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return fmt::format("element [{}] is {}", fmt::join(at, ", "), value);
}

}  // namespace

void FiniteCheck::check(const std::string& what, const at::Tensor& values, const ParameterInfo* parameter) {
  if (!nan_.empty() || !values.defined() || !values.is_floating_point() || values.numel() == 0) return;
  const at::Tensor detached = values.detach();
  if (detached.isfinite().all().item<bool>()) return;
  const at::Tensor is_nan = detached.isnan();
  if (is_nan.any().item<bool>()) {
    nan_ = what + " " + describe_first(detached, is_nan, parameter);
  } else if (infinity_.empty()) {
    infinity_ = what + " " + describe_first(detached, detached.isinf(), parameter);
  }
}

std::string FiniteCheck::finding() const {
  if (nan_.empty()) return infinity_;
  return infinity_.empty() ? nan_ : nan_ + "; before that, " + infinity_;
}

void FiniteCheck::reset() {
  nan_.clear();
  infinity_.clear();
  last_finite_unit_.clear();
}

std::string FiniteCheck::unit_name(int unit) const {
  return unit == 0 ? "the root unit" : "unit '" + table_.units[static_cast<size_t>(unit)].name + "'";
}

UnitValues FiniteCheck::acquire(int unit, UnitCall call) {
  auto values = inner_.acquire(unit, call);
  const auto& members = table_.units[static_cast<size_t>(unit)];
  check_all(unit, members.parameters, values.parameters);
  check_all(unit, members.frozen, values.frozen);
  return values;
}

void FiniteCheck::check_all(int unit, const std::vector<int>& members, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& info = table_.parameters[static_cast<size_t>(members[i])];
    check(fmt::format("parameter '{}' ({}) at the beginning of the step:", info.name, unit_name(unit)), values[i],
          &info);
  }
}

void FiniteCheck::take_gradients(int unit, std::vector<at::Tensor> gradients) {
  const auto& members = table_.units[static_cast<size_t>(unit)].parameters;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& info = table_.parameters[static_cast<size_t>(members[i])];
    check(fmt::format("the gradient of parameter '{}' ({}), the first in the order of backward:", info.name,
                      unit_name(unit)),
          gradients[i], &info);
  }
  inner_.take_gradients(unit, std::move(gradients));
}

void FiniteCheck::on_enter(int unit, const std::vector<at::Tensor>& inputs) {
  if (unit == 0) return;  // the data, which has been checked by name
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(fmt::format("input {} of {}, {}, computed by the root unit{}:", i, unit_name(unit), type_and_shape(inputs[i]),
                      last_finite_unit_),
          inputs[i]);
  }
}

void FiniteCheck::on_exit(int unit, const std::vector<at::Tensor>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string which = outputs.size() > 1 ? fmt::format("output {}", i) : std::string("the output");
    check(fmt::format("{} of {}, {}{}:", which, unit_name(unit), type_and_shape(outputs[i]),
                      unit == 0 ? last_finite_unit_ : std::string()),
          outputs[i]);
  }
  if (unit != 0) last_finite_unit_ = fmt::format(" after {}, which returned finite values", unit_name(unit));
}

}  // namespace dslaunch::runtime::engine::diagnosis
