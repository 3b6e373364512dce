#include "runtime/optim/coefficients.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

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

// For coefficients with both forms of weight decay.
template <class Coefficients>
void set_decay(Coefficients& c, const config::Optimizer& settings, const GroupRates& rates) {
  if (settings.decoupled_weight_decay) {
    c.decoupled_decay = static_cast<float>(rates.lr * settings.weight_decay);
  } else {
    c.coupled_decay = static_cast<float>(settings.weight_decay);
  }
}

// NAdam's momentum of step t is beta1 (1 - q^t / 2), with q = 0.96^momentum_decay.
double nadam_momentum(double beta1, double log_q, int64_t step) {
  return beta1 * (1.0 - 0.5 * std::exp(log_q * static_cast<double>(step)));
}

// The product of the momenta of steps 1 to t. The logarithm of the factors' second parts is a sum over i of
// log(1 - q^i / 2); its power series, summed over i first, converges like 2^-k whatever the number of steps.
double nadam_momentum_product(double beta1, double log_q, int64_t step) {
  constexpr int kTerms = 60;
  const auto t = static_cast<double>(step);
  double sum = 0.0;
  for (int k = 1; k <= kTerms; ++k) {
    const double of_steps = log_q == 0.0 ? t : std::exp(k * log_q) * std::expm1(k * t * log_q) / std::expm1(k * log_q);
    sum += std::exp2(-k) / k * of_steps;
  }
  return std::pow(beta1, t) * std::exp(-sum);
}

// RAdam's factor of the second moment; empty while too few steps stand behind that.
std::optional<double> rectification(double beta2, double correction2, int64_t step) {
  const double infinite = 2.0 / (1.0 - beta2) - 1.0;
  const auto t = static_cast<double>(step);
  const double rho = infinite - 2.0 * t * std::pow(beta2, t) / correction2;
  if (rho <= 5.0) return std::nullopt;
  return std::sqrt((rho - 4.0) * (rho - 2.0) * infinite / ((infinite - 4.0) * (infinite - 2.0) * rho));
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
  set_decay(c, settings, rates);
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

RmspropCoefficients rmsprop_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t) {
  RmspropCoefficients c;
  c.direction = direction_of(settings);
  c.lr = static_cast<float>(rates.lr);
  c.alpha = static_cast<float>(settings.alpha);
  c.one_minus_alpha = static_cast<float>(1.0 - settings.alpha);
  c.eps = static_cast<float>(settings.eps);
  c.momentum = static_cast<float>(settings.momentum);
  c.coupled_decay = static_cast<float>(settings.weight_decay);
  return c;
}

NadamCoefficients nadam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const double log_q = settings.momentum_decay * std::log(0.96);
  const double now = nadam_momentum(settings.beta1, log_q, step);
  const double next = nadam_momentum(settings.beta1, log_q, step + 1);
  const double product = nadam_momentum_product(settings.beta1, log_q, step);
  const double correction2 = 1.0 - std::pow(settings.beta2, static_cast<double>(step));
  NadamCoefficients c;
  c.direction = direction_of(settings);
  c.one_minus_beta1 = static_cast<float>(1.0 - settings.beta1);
  c.beta2 = static_cast<float>(settings.beta2);
  c.one_minus_beta2 = static_cast<float>(1.0 - settings.beta2);
  c.eps = static_cast<float>(settings.eps);
  c.gradient_size = static_cast<float>(rates.lr * (1.0 - now) / (1.0 - product));
  c.moment_size = static_cast<float>(rates.lr * next / (1.0 - product * next));
  c.inverse_root_correction = static_cast<float>(1.0 / std::sqrt(correction2));
  set_decay(c, settings, rates);
  return c;
}

RadamCoefficients radam_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const Betas b = betas_of(settings, rates, step);
  RadamCoefficients c;
  c.direction = direction_of(settings);
  c.one_minus_beta1 = static_cast<float>(1.0 - b.first);
  c.beta2 = static_cast<float>(b.second);
  c.one_minus_beta2 = static_cast<float>(1.0 - b.second);
  const auto rectified = rectification(b.second, b.correction2, step);
  c.step_size =
      static_cast<float>(rates.lr / b.correction1 * (rectified ? *rectified * std::sqrt(b.correction2) : 1.0));
  if (rectified) {
    c.root_weight = 1.0F;
    c.offset = static_cast<float>(settings.eps);
  }
  set_decay(c, settings, rates);
  return c;
}

AdamaxCoefficients adamax_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const Betas b = betas_of(settings, rates, step);
  AdamaxCoefficients c;
  c.direction = direction_of(settings);
  c.one_minus_beta1 = static_cast<float>(1.0 - b.first);
  c.beta2 = static_cast<float>(b.second);
  c.eps = static_cast<float>(settings.eps);
  c.step_size = static_cast<float>(rates.lr / b.correction1);
  c.coupled_decay = static_cast<float>(settings.weight_decay);
  return c;
}

AdadeltaCoefficients adadelta_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t) {
  AdadeltaCoefficients c;
  c.direction = direction_of(settings);
  c.lr = static_cast<float>(rates.lr);
  c.rho = static_cast<float>(settings.rho);
  c.one_minus_rho = static_cast<float>(1.0 - settings.rho);
  c.eps = static_cast<float>(settings.eps);
  c.coupled_decay = static_cast<float>(settings.weight_decay);
  return c;
}

RpropCoefficients rprop_coefficients(const config::Optimizer& settings, const GroupRates&, int64_t) {
  RpropCoefficients c;
  c.direction = direction_of(settings);
  c.eta_minus = static_cast<float>(settings.eta_minus);
  c.eta_plus = static_cast<float>(settings.eta_plus);
  c.min_step = static_cast<float>(settings.min_step_size);
  c.max_step = static_cast<float>(settings.max_step_size);
  return c;
}

AsgdCoefficients asgd_coefficients(const config::Optimizer& settings, const GroupRates& rates, int64_t step) {
  const auto before = static_cast<double>(step - 1);
  const double size = rates.lr / std::pow(1.0 + settings.lambd * rates.lr * before, settings.alpha);
  AsgdCoefficients c;
  c.direction = direction_of(settings);
  c.decay = static_cast<float>(settings.lambd * size);
  c.step_size = static_cast<float>(size);
  c.share = static_cast<float>(1.0 / std::max(1.0, before - settings.t0));
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
