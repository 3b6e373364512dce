#include "runtime/engine/diagnosis/finite_check.hpp"

#include <ATen/ATen.h>

#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::diagnosis {
namespace {

// "element [2, 0] is nan": describes the first element of `values` for which `mask` is set.
std::string describe_first(const at::Tensor& values, const at::Tensor& mask) {
  auto element = mask.reshape({-1}).to(at::kByte).argmax().item<int64_t>();
  // "nan", "inf" or "-inf"
  const std::string value = format_loss(values.reshape({-1})[element].to(at::kDouble).item<double>());
  std::vector<int64_t> at(static_cast<size_t>(values.dim()));
  for (int64_t dim = values.dim(); dim-- > 0;) {
    at[static_cast<size_t>(dim)] = element % values.size(dim);
    element /= values.size(dim);
  }
  return values.dim() == 0 ? fmt::format("is {}", value)
                           : fmt::format("element [{}] is {}", fmt::join(at, ", "), value);
}

}  // namespace

void FiniteCheck::check(const std::string& what, const at::Tensor& values) {
  if (!nan_.empty() || !values.defined() || !values.is_floating_point() || values.numel() == 0) return;
  const at::Tensor detached = values.detach();
  if (detached.isfinite().all().item<bool>()) return;
  const at::Tensor is_nan = detached.isnan();
  if (is_nan.any().item<bool>()) {
    nan_ = what + " " + describe_first(detached, is_nan);
  } else if (infinity_.empty()) {
    infinity_ = what + " " + describe_first(detached, detached.isinf());
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
    const auto& name = table_.parameters[static_cast<size_t>(members[i])].name;
    check(fmt::format("parameter '{}' ({}) at the beginning of the step:", name, unit_name(unit)), values[i]);
  }
}

void FiniteCheck::take_gradients(int unit, std::vector<at::Tensor> gradients) {
  const auto& members = table_.units[static_cast<size_t>(unit)].parameters;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& name = table_.parameters[static_cast<size_t>(members[i])].name;
    check(
        fmt::format("the gradient of parameter '{}' ({}), the first in the order of backward:", name, unit_name(unit)),
        gradients[i]);
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
