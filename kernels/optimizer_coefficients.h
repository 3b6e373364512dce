// What one optimizer step multiplies with, rounded to fp32: the kernels here and the host loops of lib/runtime/optim
// share these structs and compute the same bits from them. Plain numbers, so that an array of them can be copied to a
// device as it is; needs no CUDA headers.
#pragma once

namespace dslaunch::kernels {

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
  float keep = 0, share = 1;  // the first step takes the gradient as it is, without dampening
  float gradient_weight = 1, momentum_weight = 0;
};

}  // namespace dslaunch::kernels
