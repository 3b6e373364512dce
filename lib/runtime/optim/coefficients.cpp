#include "runtime/optim/coefficients.hpp"

#include <cmath>

namespace dslaunch::runtime::optim {

AdamCoefficients adam_coefficients(const config::Optimizer& settings, double lr, int64_t step) {
  const auto steps = static_cast<double>(step);
  const double correction1 = settings.bias_correction ? 1.0 - std::pow(settings.beta1, steps) : 1.0;
  const double correction2 = settings.bias_correction ? 1.0 - std::pow(settings.beta2, steps) : 1.0;
  AdamCoefficients c;
  c.one_minus_beta1 = static_cast<float>(1.0 - settings.beta1);
  c.beta2 = static_cast<float>(settings.beta2);
  c.one_minus_beta2 = static_cast<float>(1.0 - settings.beta2);
  c.eps = static_cast<float>(settings.eps);
  c.step_size = static_cast<float>(lr / correction1);
  c.inverse_root_correction = static_cast<float>(1.0 / std::sqrt(correction2));
  if (settings.decoupled_weight_decay) {
    c.decoupled_decay = static_cast<float>(lr * settings.weight_decay);
  } else {
    c.coupled_decay = static_cast<float>(settings.weight_decay);
  }
  return c;
}

SgdCoefficients sgd_coefficients(const config::Optimizer& settings, double lr, int64_t step) {
  SgdCoefficients c;
  c.lr = static_cast<float>(lr);
  c.coupled_decay = static_cast<float>(settings.weight_decay);
  if (settings.momentum == 0.0) return c;
  const bool first = step == 1;
  c.keep = first ? 0.0F : static_cast<float>(settings.momentum);
  c.share = first ? 1.0F : static_cast<float>(1.0 - settings.dampening);
  c.gradient_weight = settings.nesterov ? 1.0F : 0.0F;
  c.momentum_weight = settings.nesterov ? static_cast<float>(settings.momentum) : 1.0F;
  return c;
}

}  // namespace dslaunch::runtime::optim
