#include "runtime/engine/verify/gradient_magnitudes.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace dslaunch::runtime::engine::verify {

GradientMagnitudes::GradientMagnitudes(const ParameterTable& table, UnitParameters& parameters)
    : table_(table), parameters_(parameters), sums_(table.parameters.size()) {}

void GradientMagnitudes::begin_step() {
  for (auto& sum : sums_) {
    if (sum.defined()) sum.zero_();
  }
}

void GradientMagnitudes::take_gradients(int unit, std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  const auto& members = table_.units[static_cast<size_t>(unit)].parameters;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const at::Tensor sizes = gradients[i].reshape({-1}).to(at::kFloat).abs();
    at::Tensor& sum = sums_[static_cast<size_t>(members[i])];
    sum = sum.defined() ? sum.add_(sizes) : sizes;
  }
  parameters_.take_gradients(unit, std::move(gradients));
}

}  // namespace dslaunch::runtime::engine::verify
