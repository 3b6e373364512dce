// Compiled with -ffp-contract=off (see CMakeLists.txt): a fused multiply-add in the vector body and none in the tail
// would make a result depend on where a shard begins.
#include "runtime/optim/host_update.hpp"

#include <cmath>

#include "runtime/optim/low_precision.hpp"

#define DSL_INLINE __attribute__((always_inline)) inline
#define DSL_AVX2 __attribute__((target("avx2")))
#ifdef __clang__
#define DSL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else  // g++ stays with 256 bits unless told, and Clang does not know the word
#define DSL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif

namespace dslaunch::runtime::optim::host {
namespace {

constexpr int kLanes = 16;  // of a sum of squares: two AVX-512 registers of double

template <LowPrecision kType>
DSL_INLINE void store_low_precision(uint16_t* low_precision, int64_t i, float value) {
  if constexpr (kType == LowPrecision::kBFloat16) low_precision[i] = bfloat16_bits(value);
  if constexpr (kType == LowPrecision::kFloat16) low_precision[i] = float16_bits(value);
}

template <LowPrecision kType>
DSL_INLINE void adam_loop(const AdamRange& range, const AdamCoefficients& coefficients, float gradient_factor) {
  float* __restrict master = range.master;
  const float* __restrict gradient = range.gradient;
  float* __restrict exp_avg = range.exp_avg;
  float* __restrict exp_avg_sq = range.exp_avg_sq;
  uint16_t* __restrict low_precision = range.low_precision;
  const AdamCoefficients c = coefficients;
  for (int64_t i = 0; i < range.count; ++i) {
    const float p = master[i];
    const float g = gradient[i] * gradient_factor + c.coupled_decay * p;
    const float m = exp_avg[i] + (g - exp_avg[i]) * c.one_minus_beta1;
    const float v = exp_avg_sq[i] * c.beta2 + g * g * c.one_minus_beta2;
    const float denominator = std::sqrt(v) * c.inverse_root_correction + c.eps;
    const float updated = p - (c.step_size * (m / denominator) + c.decoupled_decay * p);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = updated;
    store_low_precision<kType>(low_precision, i, updated);
  }
}

template <LowPrecision kType>
DSL_INLINE void sgd_plain_loop(const SgdRange& range, const SgdCoefficients& coefficients, float gradient_factor) {
  float* __restrict master = range.master;
  const float* __restrict gradient = range.gradient;
  uint16_t* __restrict low_precision = range.low_precision;
  const SgdCoefficients c = coefficients;
  for (int64_t i = 0; i < range.count; ++i) {
    const float p = master[i];
    const float updated = p - c.lr * (gradient[i] * gradient_factor + c.coupled_decay * p);
    master[i] = updated;
    store_low_precision<kType>(low_precision, i, updated);
  }
}

template <LowPrecision kType>
DSL_INLINE void sgd_momentum_loop(const SgdRange& range, const SgdCoefficients& coefficients, float gradient_factor) {
  float* __restrict master = range.master;
  const float* __restrict gradient = range.gradient;
  float* __restrict momentum = range.momentum;
  uint16_t* __restrict low_precision = range.low_precision;
  const SgdCoefficients c = coefficients;
  for (int64_t i = 0; i < range.count; ++i) {
    const float p = master[i];
    const float g = gradient[i] * gradient_factor + c.coupled_decay * p;
    const float b = c.keep * momentum[i] + c.share * g;
    const float updated = p - c.lr * (c.gradient_weight * g + c.momentum_weight * b);
    momentum[i] = b;
    master[i] = updated;
    store_low_precision<kType>(low_precision, i, updated);
  }
}

template <LowPrecision kType>
DSL_INLINE void sgd_loop(const SgdRange& range, const SgdCoefficients& coefficients, float gradient_factor) {
  if (range.momentum != nullptr) {
    sgd_momentum_loop<kType>(range, coefficients, gradient_factor);
  } else {
    sgd_plain_loop<kType>(range, coefficients, gradient_factor);
  }
}

DSL_INLINE double squares_loop(const float* __restrict values, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = values[i + lane];
      lanes[lane] += x * x;
    }
  }
  for (int lane = 0; i + lane < count; ++lane) {
    const double x = values[i + lane];
    lanes[lane] += x * x;
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// One function for each loop and instruction set; the loops above are inlined into them and vectorised there.
template <LowPrecision kType>
void adam_baseline(const AdamRange& range, const AdamCoefficients& c, float factor) {
  adam_loop<kType>(range, c, factor);
}
template <LowPrecision kType>
DSL_AVX2 void adam_avx2(const AdamRange& range, const AdamCoefficients& c, float factor) {
  adam_loop<kType>(range, c, factor);
}
template <LowPrecision kType>
DSL_AVX512 void adam_avx512(const AdamRange& range, const AdamCoefficients& c, float factor) {
  adam_loop<kType>(range, c, factor);
}
template <LowPrecision kType>
void sgd_baseline(const SgdRange& range, const SgdCoefficients& c, float factor) {
  sgd_loop<kType>(range, c, factor);
}
template <LowPrecision kType>
DSL_AVX2 void sgd_avx2(const SgdRange& range, const SgdCoefficients& c, float factor) {
  sgd_loop<kType>(range, c, factor);
}
template <LowPrecision kType>
DSL_AVX512 void sgd_avx512(const SgdRange& range, const SgdCoefficients& c, float factor) {
  sgd_loop<kType>(range, c, factor);
}
double squares_baseline(const float* values, int64_t count) {
  return squares_loop(values, count);
}
DSL_AVX2 double squares_avx2(const float* values, int64_t count) {
  return squares_loop(values, count);
}
DSL_AVX512 double squares_avx512(const float* values, int64_t count) {
  return squares_loop(values, count);
}

template <LowPrecision kType>
void adam_typed(const AdamRange& range, const AdamCoefficients& c, float factor, InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return adam_baseline<kType>(range, c, factor);
    case InstructionSet::kAvx2:
      return adam_avx2<kType>(range, c, factor);
    case InstructionSet::kAvx512:
      return adam_avx512<kType>(range, c, factor);
  }
}

template <LowPrecision kType>
void sgd_typed(const SgdRange& range, const SgdCoefficients& c, float factor, InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return sgd_baseline<kType>(range, c, factor);
    case InstructionSet::kAvx2:
      return sgd_avx2<kType>(range, c, factor);
    case InstructionSet::kAvx512:
      return sgd_avx512<kType>(range, c, factor);
  }
}

}  // namespace

bool is_supported(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return true;
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") != 0;
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = is_supported(InstructionSet::kAvx512) ? InstructionSet::kAvx512
                                     : is_supported(InstructionSet::kAvx2) ? InstructionSet::kAvx2
                                                                           : InstructionSet::kBaseline;
  return best;
}

void update_adam(const AdamRange& range, const AdamCoefficients& coefficients, float gradient_factor,
                 InstructionSet set) {
  switch (range.low_precision_type) {
    case LowPrecision::kNone:
      return adam_typed<LowPrecision::kNone>(range, coefficients, gradient_factor, set);
    case LowPrecision::kBFloat16:
      return adam_typed<LowPrecision::kBFloat16>(range, coefficients, gradient_factor, set);
    case LowPrecision::kFloat16:
      return adam_typed<LowPrecision::kFloat16>(range, coefficients, gradient_factor, set);
  }
}

void update_sgd(const SgdRange& range, const SgdCoefficients& coefficients, float gradient_factor, InstructionSet set) {
  switch (range.low_precision_type) {
    case LowPrecision::kNone:
      return sgd_typed<LowPrecision::kNone>(range, coefficients, gradient_factor, set);
    case LowPrecision::kBFloat16:
      return sgd_typed<LowPrecision::kBFloat16>(range, coefficients, gradient_factor, set);
    case LowPrecision::kFloat16:
      return sgd_typed<LowPrecision::kFloat16>(range, coefficients, gradient_factor, set);
  }
}

double sum_of_squares(const float* values, int64_t count, InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return squares_avx512(values, count);
    case InstructionSet::kAvx2:
      return squares_avx2(values, count);
    case InstructionSet::kBaseline:
      break;
  }
  return squares_baseline(values, count);
}

}  // namespace dslaunch::runtime::optim::host
