// The optimizers' coefficients, and the rules of those that are element-wise. The kernel and the host loops of
// lib/runtime/optim share this source and compute the same bits from it; plain arithmetic, needs no CUDA headers.
//
// Coefficients are the factors of one step, rounded to fp32: plain numbers, so that an array of them can be copied to a
// device as it is. A rule is one struct: update() computes an element and its moments from g = gradient * (factor *
// direction).
//
// In all of them g = gradient * (factor * direction) + coupled_decay * p, where factor covers averaging and clipping,
// direction is -1 to maximize (`maximize`), else 1, and coupled_decay is the weight decay in its L2 form. Lion, LAMB
// and Muon apply weight decay separately from the gradient.
#pragma once
#include <cmath>

#ifdef __CUDACC__
#define DSL_RULE __device__ static
#else
#define DSL_RULE __attribute__((always_inline)) static inline
#endif

namespace dslaunch::kernels {

constexpr int kMaxMoments = 3;  // of any rule

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

// m += (1 - beta1) * (g - m);  v = beta2 * v + (1 - beta2) * g * g
template <class Values>
DSL_RULE void update_adam_moments(float g, float* moments, const Values& c) {
  moments[0] = moments[0] + (g - moments[0]) * c.one_minus_beta1;
  moments[1] = moments[1] * c.beta2 + g * g * c.one_minus_beta2;
}

template <bool kAmsgrad>
struct AdamLikeRule {
  using Values = AdamCoefficients;
  static constexpr int kMoments = kAmsgrad ? 3 : 2;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    update_adam_moments(g, moments, c);
    const float m = moments[0], v = moments[1];
    float w = v;
    if constexpr (kAmsgrad) {
      w = moments[2] > v ? moments[2] : v;
      moments[2] = w;
    }
    const float denominator = std::sqrt(w) * c.inverse_root_correction + c.eps;
    p = p - (c.step_size * (m / denominator) + c.decoupled_decay * p);
  }
};
using AdamRule = AdamLikeRule<false>;
using AmsgradRule = AdamLikeRule<true>;

// with momentum: b = keep * b + share * g;  p -= lr * (gradient_weight * g + momentum_weight * b)
// without:       p -= lr * g
struct SgdCoefficients {
  float direction = 1;
  float lr = 0, coupled_decay = 0;
  float keep = 0, share = 1;  // the first step takes the gradient as it is, without dampening
  float gradient_weight = 1, momentum_weight = 0;
};

struct SgdRule {
  using Values = SgdCoefficients;
  static constexpr int kMoments = 0;
  DSL_RULE void update(float& p, float g, float* /*moments*/, const Values& c) {
    g = g + c.coupled_decay * p;
    p = p - c.lr * g;
  }
};

struct SgdMomentumRule {
  using Values = SgdCoefficients;
  static constexpr int kMoments = 1;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    float& b = moments[0];
    g = g + c.coupled_decay * p;
    b = c.keep * b + c.share * g;
    p = p - c.lr * (c.gradient_weight * g + c.momentum_weight * b);
  }
};

// p = p * keep - lr * sign(beta1 * m + one_minus_beta1 * g),  m = beta2 * m + one_minus_beta2 * g
struct LionCoefficients {
  float direction = 1;
  float beta1 = 0, one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float lr = 0;
  float keep = 1;  // 1 - lr * weight_decay
};

struct LionRule {
  using Values = LionCoefficients;
  static constexpr int kMoments = 1;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    float& m = moments[0];
    const float mixed = c.beta1 * m + c.one_minus_beta1 * g;
    const float sign = mixed > 0.0F ? 1.0F : mixed < 0.0F ? -1.0F : mixed;  // 0 stays 0, NaN stays NaN
    p = p * c.keep - c.lr * sign;
    m = c.beta2 * m + c.one_minus_beta2 * g;
  }
};

// s += g * g,  p -= step_size * (g / (sqrt(s) + eps))
struct AdagradCoefficients {
  float direction = 1;
  float step_size = 0;  // lr after lr_decay
  float eps = 0, coupled_decay = 0;
};

struct AdagradRule {
  using Values = AdagradCoefficients;
  static constexpr int kMoments = 1;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    float& s = moments[0];
    g = g + c.coupled_decay * p;
    s = s + g * g;
    p = p - c.step_size * (g / (std::sqrt(s) + c.eps));
  }
};

// s = alpha * s + one_minus_alpha * g * g;  u = g / (sqrt(s) + eps), centered: / (sqrt(s - a * a) + eps), where
// a += (g - a) * one_minus_alpha
// without momentum: p -= lr * u
// with momentum:    b = momentum * b + u;  p -= lr * b
struct RmspropCoefficients {
  float direction = 1;
  float lr = 0, alpha = 0, one_minus_alpha = 0, eps = 0, momentum = 0, coupled_decay = 0;
};

template <bool kHasMomentum, bool kIsCentered>
struct RmspropLikeRule {
  using Values = RmspropCoefficients;
  static constexpr int kMoments = 1 + (kHasMomentum ? 1 : 0) + (kIsCentered ? 1 : 0);
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    const float s = c.alpha * moments[0] + c.one_minus_alpha * (g * g);
    moments[0] = s;
    float variance = s;
    if constexpr (kIsCentered) {
      float& a = moments[kMoments - 1];
      a = a + (g - a) * c.one_minus_alpha;
      variance = s - a * a;
      variance = variance < 0.0F ? 0.0F : variance;  // by rounding
    }
    float u = g / (std::sqrt(variance) + c.eps);
    if constexpr (kHasMomentum) {
      u = c.momentum * moments[1] + u;
      moments[1] = u;
    }
    p = p - c.lr * u;
  }
};
using RmspropRule = RmspropLikeRule<false, false>;
using RmspropMomentumRule = RmspropLikeRule<true, false>;
using CenteredRmspropRule = RmspropLikeRule<false, true>;
using CenteredRmspropMomentumRule = RmspropLikeRule<true, true>;

// m and v as Adam;  p -= (gradient_size * g + moment_size * m) / (sqrt(v) * inverse_root_correction + eps) +
// decoupled_decay * p
struct NadamCoefficients {
  float direction = 1;
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
  float gradient_size = 0, moment_size = 0;  // lr, the momentum of this step and of the next, and their corrections
  float inverse_root_correction = 1;
  float coupled_decay = 0, decoupled_decay = 0;
};

struct NadamRule {
  using Values = NadamCoefficients;
  static constexpr int kMoments = 2;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    update_adam_moments(g, moments, c);
    const float m = moments[0], v = moments[1];
    const float denominator = std::sqrt(v) * c.inverse_root_correction + c.eps;
    p = p - ((c.gradient_size * g + c.moment_size * m) / denominator + c.decoupled_decay * p);
  }
};

// m and v as Adam;  p -= step_size * (m / (root_weight * sqrt(v) + offset)) + decoupled_decay * p
struct RadamCoefficients {
  float direction = 1;
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float step_size = 0;                // lr, the bias corrections and the rectification
  float root_weight = 0, offset = 1;  // 1 and eps from the step on that is rectified, before it 0 and 1
  float coupled_decay = 0, decoupled_decay = 0;
};

struct RadamRule {
  using Values = RadamCoefficients;
  static constexpr int kMoments = 2;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    update_adam_moments(g, moments, c);
    const float m = moments[0], v = moments[1];
    p = p - (c.step_size * (m / (c.root_weight * std::sqrt(v) + c.offset)) + c.decoupled_decay * p);
  }
};

// m as Adam;  u = max(u * beta2, |g| + eps);  p -= step_size * (m / u)
struct AdamaxCoefficients {
  float direction = 1;
  float one_minus_beta1 = 0, beta2 = 0, eps = 0;
  float step_size = 0;  // lr / the first moment's bias correction
  float coupled_decay = 0;
};

struct AdamaxRule {
  using Values = AdamaxCoefficients;
  static constexpr int kMoments = 2;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    const float m = moments[0] + (g - moments[0]) * c.one_minus_beta1;
    const float faded = moments[1] * c.beta2;
    const float size = std::fabs(g) + c.eps;
    const float u = faded > size ? faded : size;
    moments[0] = m;
    moments[1] = u;
    p = p - c.step_size * (m / u);
  }
};

// s = rho * s + one_minus_rho * g * g;  u = sqrt(a + eps) / sqrt(s + eps) * g;  a = rho * a + one_minus_rho * u * u;
// p -= lr * u
struct AdadeltaCoefficients {
  float direction = 1;
  float lr = 0, rho = 0, one_minus_rho = 0, eps = 0, coupled_decay = 0;
};

struct AdadeltaRule {
  using Values = AdadeltaCoefficients;
  static constexpr int kMoments = 2;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    const float s = c.rho * moments[0] + c.one_minus_rho * (g * g);
    const float u = std::sqrt(moments[1] + c.eps) / std::sqrt(s + c.eps) * g;
    moments[0] = s;
    moments[1] = c.rho * moments[1] + c.one_minus_rho * (u * u);
    p = p - c.lr * u;
  }
};

// Where the gradient keeps its sign the step grows by eta_plus; where the sign changes it shrinks by eta_minus, and the
// gradient counts as 0. Between min_step and max_step.  p -= sign(g) * step
struct RpropCoefficients {
  float direction = 1;
  float eta_minus = 0, eta_plus = 0, min_step = 0, max_step = 0;
};

struct RpropRule {
  using Values = RpropCoefficients;
  static constexpr int kMoments = 2;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    const float product = g * moments[0];
    const float factor = product > 0.0F ? c.eta_plus : product < 0.0F ? c.eta_minus : product + 1.0F;  // 0: 1; NaN: NaN
    float step = moments[1] * factor;
    step = step < c.min_step ? c.min_step : step > c.max_step ? c.max_step : step;
    const float kept = product < 0.0F ? 0.0F : g;
    const float sign = kept > 0.0F ? 1.0F : kept < 0.0F ? -1.0F : kept;
    moments[0] = kept;
    moments[1] = step;
    p = p - sign * step;
  }
};

// p -= step_size * g + decay * p;  a += (p - a) * share, at a share of 1 a = p
struct AsgdCoefficients {
  float direction = 1;
  float step_size = 0, share = 1;
  float decay = 0;  // lambd * step_size
  float coupled_decay = 0;
};

struct AsgdRule {
  using Values = AsgdCoefficients;
  static constexpr int kMoments = 1;
  DSL_RULE void update(float& p, float g, float* moments, const Values& c) {
    g = g + c.coupled_decay * p;
    p = p - (c.step_size * g + c.decay * p);
    const float a = moments[0];
    moments[0] = c.share == 1.0F ? p : a + (p - a) * c.share;
  }
};

// Every rule, for what there is once for each: the kernel, its place in the table of device functions, the host loop.
#define DSL_ELEMENT_RULES(X)     \
  X(AdamRule)                    \
  X(AmsgradRule)                 \
  X(SgdRule)                     \
  X(SgdMomentumRule)             \
  X(LionRule)                    \
  X(AdagradRule)                 \
  X(RmspropRule)                 \
  X(RmspropMomentumRule)         \
  X(CenteredRmspropRule)         \
  X(CenteredRmspropMomentumRule) \
  X(NadamRule)                   \
  X(RadamRule)                   \
  X(AdamaxRule)                  \
  X(AdadeltaRule)                \
  X(RpropRule)                   \
  X(AsgdRule)

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

#undef DSL_RULE
