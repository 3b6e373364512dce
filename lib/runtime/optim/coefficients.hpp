// What one step multiplies with, computed once in double and rounded to fp32: the host loops and the CUDA kernels
// receive the same numbers. Pure.
#pragma once
#include <cstdint>

#include "config/job_config.hpp"

namespace dslaunch::runtime::optim {

// g = gradient * factor + coupled_decay * p
// m += (g - m) * one_minus_beta1,  v = v * beta2 + g * g * one_minus_beta2
// p -= step_size * (m / (sqrt(v) * inverse_root_correction + eps)) + decoupled_decay * p
struct AdamCoefficients {
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
  float step_size = 0;                // lr, over the first moment's bias correction
  float inverse_root_correction = 1;  // 1 / sqrt of the second moment's bias correction
  float coupled_decay = 0;            // weight_decay of the L2 form, else 0
  float decoupled_decay = 0;          // lr * weight_decay of AdamW's form, else 0
};

// g = gradient * factor + coupled_decay * p
// with momentum: b = keep * b + share * g;  p -= lr * (gradient_weight * g + momentum_weight * b)
// without:       p -= lr * g
struct SgdCoefficients {
  float lr = 0, coupled_decay = 0;
  bool has_momentum = false;
  float keep = 0, share = 1;  // the first step takes the gradient as it is, without dampening
  float gradient_weight = 1, momentum_weight = 0;
};

// `step` counts the applied steps from 1.
AdamCoefficients adam_coefficients(const config::Optimizer& settings, double lr, int64_t step);
SgdCoefficients sgd_coefficients(const config::Optimizer& settings, double lr, int64_t step);

}  // namespace dslaunch::runtime::optim
