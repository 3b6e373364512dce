// The factors of one optimizer step, rounded to fp32: the kernels here and the host loops of lib/runtime/optim share
// these structs and compute the same bits from them. Plain numbers, so that an array of them can be copied to a device
// as it is; needs no CUDA headers.
//
// In all of them g = gradient * (factor * direction) + coupled_decay * p, where factor covers averaging and clipping,
// direction is -1 to maximize (`maximize`), else 1, and coupled_decay is the weight decay in its L2 form. Lion, LAMB
// and Muon apply weight decay separately from the gradient.
#pragma once

namespace dslaunch::kernels {

// m += (g - m) * one_minus_beta1,  v = v * beta2 + g * g * one_minus_beta2
// p -= step_size * (m / (sqrt(w) * inverse_root_correction + eps)) + decoupled_decay * p
// w is v, with AMSGrad the largest v so far.
struct AdamCoefficients {
  float direction = 1;
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
  float step_size = 0;                // lr / the first moment's bias correction
  float inverse_root_correction = 1;  // 1 / sqrt of the second moment's bias correction
  float coupled_decay = 0;            // weight_decay of the L2 form, else 0
  float decoupled_decay = 0;          // lr * weight_decay of AdamW's form, else 0
};

// with momentum: b = keep * b + share * g;  p -= lr * (gradient_weight * g + momentum_weight * b)
// without:       p -= lr * g
struct SgdCoefficients {
  float direction = 1;
  float lr = 0, coupled_decay = 0;
  float keep = 0, share = 1;  // the first step takes the gradient as it is, without dampening
  float gradient_weight = 1, momentum_weight = 0;
};

// p = p * keep - lr * sign(beta1 * m + one_minus_beta1 * g),  m = beta2 * m + one_minus_beta2 * g
struct LionCoefficients {
  float direction = 1;
  float beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float lr = 0;
  float keep = 1;  // 1 - lr * weight_decay
};

// s += g * g,  p -= step_size * (g / (sqrt(s) + eps))
struct AdagradCoefficients {
  float direction = 1;
  float step_size = 0;  // lr after lr_decay
  float eps = 0, coupled_decay = 0;
};

// First pass: m = beta1 * m + one_minus_beta1 * g,  v = beta2 * v + one_minus_beta2 * g * g, and for each parameter the
// sums of p * p and of u * u, where u = m / (sqrt(v + eps_inside) + eps_outside) + decay * p.
// Second pass: p -= (step_size * ratio) * u, where ratio = |p| / |u| between min_ratio and max_ratio, 1 if either is 0.
struct LambCoefficients {
  float direction = 1;
  float beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float eps_inside = 0, eps_outside = 0, decay = 0;
  float step_size = 0;  // lr * sqrt(second bias correction) / first bias correction
  float min_ratio = 0, max_ratio = 0;
};

}  // namespace dslaunch::kernels
