#include "runtime/optim/coefficients.hpp"

#include <cmath>

namespace dslaunch::runtime::optim {
namespace {

struct Betas {
  double first = 0, second = 0;
  double correction1 = 1, correction2 = 1;  // bias corrections, since the moments start at zero
};

Betas betas_of(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  Betas b{rates.beta1.value_or(settings.beta1), rates.beta2.value_or(settings.beta2)};
  if (!settings.bias_correction) return b;
  b.correction1 = 1.0 - std::pow(b.first, static_cast<double>(step));
  b.correction2 = 1.0 - std::pow(b.second, static_cast<double>(step));
  return b;
}

float direction_of(const config::Optimizer& settings) {
  return settings.maximize ? -1.0F : 1.0F;
}

}  // namespace

AdamCoefficients adam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const Betas b = betas_of(settings, rates, step);
  AdamCoefficients c;
  c.direction = direction_of(settings);
  c.one_minus_beta1 = static_cast<float>(1.0 - b.first);
  c.beta2 = static_cast<float>(b.second);
  c.one_minus_beta2 = static_cast<float>(1.0 - b.second);
  c.eps = static_cast<float>(settings.eps);
  c.step_size = static_cast<float>(rates.lr / b.correction1);
  c.inverse_root_correction = static_cast<float>(1.0 / std::sqrt(b.correction2));
  if (settings.decoupled_weight_decay) {
    c.decoupled_decay = static_cast<float>(rates.lr * settings.weight_decay);
  } else {
    c.coupled_decay = static_cast<float>(settings.weight_decay);
  }
  return c;
}

SgdCoefficients sgd_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  SgdCoefficients c;
  c.direction = direction_of(settings);
  c.lr = static_cast<float>(rates.lr);
  c.coupled_decay = static_cast<float>(settings.weight_decay);
  if (settings.momentum == 0.0) return c;
  const bool first = step == 1;
  c.keep = first ? 0.0F : static_cast<float>(settings.momentum);
  c.share = first ? 1.0F : static_cast<float>(1.0 - settings.dampening);
  c.gradient_weight = settings.nesterov ? 1.0F : 0.0F;
  c.momentum_weight = settings.nesterov ? static_cast<float>(settings.momentum) : 1.0F;
  return c;
}

LionCoefficients lion_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const Betas b = betas_of(settings, rates, step);
  LionCoefficients c;
  c.direction = direction_of(settings);
  c.beta1 = static_cast<float>(b.first);
  c.one_minus_beta1 = static_cast<float>(1.0 - b.first);
  c.beta2 = static_cast<float>(b.second);
  c.one_minus_beta2 = static_cast<float>(1.0 - b.second);
  c.lr = static_cast<float>(rates.lr);
  c.keep = static_cast<float>(1.0 - rates.lr * settings.weight_decay);
  return c;
}

AdagradCoefficients adagrad_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  AdagradCoefficients c;
  c.direction = direction_of(settings);
  c.step_size = static_cast<float>(rates.lr / (1.0 + static_cast<double>(step - 1) * settings.lr_decay));
  c.eps = static_cast<float>(settings.eps);
  c.coupled_decay = static_cast<float>(settings.weight_decay);
  return c;
}

LambCoefficients lamb_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const Betas b = betas_of(settings, rates, step);
  LambCoefficients c;
  c.direction = direction_of(settings);
  c.beta1 = static_cast<float>(b.first);
  c.one_minus_beta1 = static_cast<float>(1.0 - b.first);
  c.beta2 = static_cast<float>(b.second);
  c.one_minus_beta2 = static_cast<float>(1.0 - b.second);
  (settings.eps_inside_sqrt ? c.eps_inside : c.eps_outside) = static_cast<float>(settings.eps);
  c.decay = static_cast<float>(settings.weight_decay);
  c.step_size = static_cast<float>(rates.lr * std::sqrt(b.correction2) / b.correction1);
  c.min_ratio = static_cast<float>(settings.min_coeff);
  c.max_ratio = static_cast<float>(settings.max_coeff);
  return c;
}

}  // namespace dslaunch::runtime::optim
