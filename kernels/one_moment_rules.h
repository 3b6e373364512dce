// The rules of the optimizers with at most one moment, one struct each: update() computes an element and its moment
// from g = gradient * (factor * direction). The kernel and the host loops of lib/runtime/optim share this source; plain
// arithmetic, needs no CUDA headers. The coefficients are explained in optimizer_coefficients.h.
#pragma once
#include <cmath>

#include "kernels/optimizer_coefficients.h"

#ifdef __CUDACC__
#define DSL_RULE __device__ static
#else
#define DSL_RULE __attribute__((always_inline)) static inline
#endif

namespace dslaunch::kernels {

struct SgdRule {
  using Values = SgdCoefficients;
  static constexpr bool kHasMoment = false;
  DSL_RULE void update(float& p, float g, float& /*moment*/, const Values& c) {
    g = g + c.coupled_decay * p;
    p = p - c.lr * g;
  }
};

struct SgdMomentumRule {
  using Values = SgdCoefficients;
  static constexpr bool kHasMoment = true;
  DSL_RULE void update(float& p, float g, float& b, const Values& c) {
    g = g + c.coupled_decay * p;
    b = c.keep * b + c.share * g;
    p = p - c.lr * (c.gradient_weight * g + c.momentum_weight * b);
  }
};

struct LionRule {
  using Values = LionCoefficients;
  static constexpr bool kHasMoment = true;
  DSL_RULE void update(float& p, float g, float& m, const Values& c) {
    const float mixed = c.beta1 * m + c.one_minus_beta1 * g;
    const float sign = mixed > 0.0F ? 1.0F : mixed < 0.0F ? -1.0F : mixed;  // 0 stays 0, NaN stays NaN
    p = p * c.keep - c.lr * sign;
    m = c.beta2 * m + c.one_minus_beta2 * g;
  }
};

struct AdagradRule {
  using Values = AdagradCoefficients;
  static constexpr bool kHasMoment = true;
  DSL_RULE void update(float& p, float g, float& s, const Values& c) {
    g = g + c.coupled_decay * p;
    s = s + g * g;
    p = p - c.step_size * (g / (std::sqrt(s) + c.eps));
  }
};

}  // namespace dslaunch::kernels

#undef DSL_RULE
