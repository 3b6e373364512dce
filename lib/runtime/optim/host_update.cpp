// Compiled with -ffp-contract=off (see CMakeLists.txt): a fused multiply-add in the vector body but not in the tail
// would make a result depend on where a shard begins.
#include "runtime/optim/host_update.hpp"

#include <algorithm>
#include <cmath>

#include "base/half_float.hpp"
#include "kernels/one_moment_rules.h"

#define DSL_INLINE __attribute__((always_inline)) inline
#define DSL_AVX2 __attribute__((target("avx2")))
#ifdef __clang__
#define DSL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else  // g++ uses 256 bits unless told otherwise, and Clang does not know the attribute
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

// The loops, one struct each: its coefficients, and run().

template <bool kAmsgrad>
struct AdamLoop {
  using Coefficients = AdamCoefficients;
  template <LowPrecision kType>
  DSL_INLINE static void run(const Range& range, const AdamCoefficients& coefficients, float factor) {
    float* __restrict master = range.master;
    const float* __restrict gradient = range.gradient;
    float* __restrict exp_avg = range.moments[0];
    float* __restrict exp_avg_sq = range.moments[1];
    float* __restrict max_exp_avg_sq = range.moments[2];
    uint16_t* __restrict low_precision = range.low_precision;
    const AdamCoefficients c = coefficients;
    const float scale = factor * c.direction;
    for (int64_t i = 0; i < range.count; ++i) {
      const float p = master[i];
      const float g = gradient[i] * scale + c.coupled_decay * p;
      const float m = exp_avg[i] + (g - exp_avg[i]) * c.one_minus_beta1;
      const float v = exp_avg_sq[i] * c.beta2 + g * g * c.one_minus_beta2;
      float w = v;
      if constexpr (kAmsgrad) {
        w = max_exp_avg_sq[i] > v ? max_exp_avg_sq[i] : v;
        max_exp_avg_sq[i] = w;
      }
      const float denominator = std::sqrt(w) * c.inverse_root_correction + c.eps;
      const float updated = p - (c.step_size * (m / denominator) + c.decoupled_decay * p);
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      master[i] = updated;
      store_low_precision<kType>(low_precision, i, updated);
    }
  }
};

template <class Rule>
struct OneMomentLoop {
  using Coefficients = typename Rule::Values;
  template <LowPrecision kType>
  DSL_INLINE static void run(const Range& range, const Coefficients& coefficients, float factor) {
    float* __restrict master = range.master;
    const float* __restrict gradient = range.gradient;
    float* __restrict moments = range.moments[0];
    uint16_t* __restrict low_precision = range.low_precision;
    const Coefficients c = coefficients;
    const float scale = factor * c.direction;
    for (int64_t i = 0; i < range.count; ++i) {
      float p = master[i];
      float m = 0;
      if constexpr (Rule::kHasMoment) m = moments[i];
      Rule::update(p, gradient[i] * scale, m, c);
      if constexpr (Rule::kHasMoment) moments[i] = m;
      master[i] = p;
      store_low_precision<kType>(low_precision, i, p);
    }
  }
};

DSL_INLINE float lamb_update(const LambCoefficients& c, float p, float m, float v) {
  return m / (std::sqrt(v + c.eps_inside) + c.eps_outside) + c.decay * p;
}

struct LambLoop {
  using Coefficients = LambCoefficients;
  // Here the factor is the trust ratio.
  template <LowPrecision kType>
  DSL_INLINE static void run(const Range& range, const LambCoefficients& coefficients, float ratio) {
    float* __restrict master = range.master;
    const float* __restrict exp_avg = range.moments[0];
    const float* __restrict exp_avg_sq = range.moments[1];
    uint16_t* __restrict low_precision = range.low_precision;
    const LambCoefficients c = coefficients;
    const float scale = c.step_size * ratio;
    for (int64_t i = 0; i < range.count; ++i) {
      const float p = master[i];
      const float updated = p - scale * lamb_update(c, p, exp_avg[i], exp_avg_sq[i]);
      master[i] = updated;
      store_low_precision<kType>(low_precision, i, updated);
    }
  }
};

DSL_INLINE double sum_of_lanes(double* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

DSL_INLINE LambSums lamb_moments_loop(const Range& range, const LambCoefficients& coefficients, float factor) {
  const float* __restrict master = range.master;
  const float* __restrict gradient = range.gradient;
  float* __restrict exp_avg = range.moments[0];
  float* __restrict exp_avg_sq = range.moments[1];
  const LambCoefficients c = coefficients;
  const float scale = factor * c.direction;
  double parameter_lanes[kLanes] = {}, update_lanes[kLanes] = {};
  for (int64_t begin = 0; begin < range.count; begin += kLanes) {
    const int64_t width = std::min<int64_t>(kLanes, range.count - begin);
    for (int64_t lane = 0; lane < width; ++lane) {
      const int64_t i = begin + lane;
      const float p = master[i];
      const float g = gradient[i] * scale;
      const float m = c.beta1 * exp_avg[i] + c.one_minus_beta1 * g;
      const float v = c.beta2 * exp_avg_sq[i] + c.one_minus_beta2 * g * g;
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      const double u = lamb_update(c, p, m, v);
      parameter_lanes[lane] += static_cast<double>(p) * static_cast<double>(p);
      update_lanes[lane] += u * u;
    }
  }
  return {sum_of_lanes(parameter_lanes), sum_of_lanes(update_lanes)};
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
  return sum_of_lanes(lanes);
}

// One function for each loop and instruction set; the loops above are inlined into them and vectorized there.
template <class Loop, LowPrecision kType>
void baseline(const Range& range, const typename Loop::Coefficients& c, float factor) {
  Loop::template run<kType>(range, c, factor);
}
template <class Loop, LowPrecision kType>
DSL_AVX2 void avx2(const Range& range, const typename Loop::Coefficients& c, float factor) {
  Loop::template run<kType>(range, c, factor);
}
template <class Loop, LowPrecision kType>
DSL_AVX512 void avx512(const Range& range, const typename Loop::Coefficients& c, float factor) {
  Loop::template run<kType>(range, c, factor);
}
LambSums lamb_moments_baseline(const Range& range, const LambCoefficients& c, float factor) {
  return lamb_moments_loop(range, c, factor);
}
DSL_AVX2 LambSums lamb_moments_avx2(const Range& range, const LambCoefficients& c, float factor) {
  return lamb_moments_loop(range, c, factor);
}
DSL_AVX512 LambSums lamb_moments_avx512(const Range& range, const LambCoefficients& c, float factor) {
  return lamb_moments_loop(range, c, factor);
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

template <class Loop, LowPrecision kType>
void run_typed(const Range& range, const typename Loop::Coefficients& c, float factor, InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return baseline<Loop, kType>(range, c, factor);
    case InstructionSet::kAvx2:
      return avx2<Loop, kType>(range, c, factor);
    case InstructionSet::kAvx512:
      return avx512<Loop, kType>(range, c, factor);
  }
}

template <class Loop>
void run_loop(const Range& range, const typename Loop::Coefficients& c, float factor, InstructionSet set) {
  switch (range.low_precision_type) {
    case LowPrecision::kNone:
      return run_typed<Loop, LowPrecision::kNone>(range, c, factor, set);
    case LowPrecision::kBFloat16:
      return run_typed<Loop, LowPrecision::kBFloat16>(range, c, factor, set);
    case LowPrecision::kFloat16:
      return run_typed<Loop, LowPrecision::kFloat16>(range, c, factor, set);
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

Range part(const Range& range, int64_t begin, int64_t end) {
  Range out = range;
  out.master += begin;
  out.gradient += begin;
  for (float*& moment : out.moments) {
    if (moment != nullptr) moment += begin;
  }
  if (out.low_precision != nullptr) out.low_precision += begin;
  out.count = end - begin;
  return out;
}

void update_adam(const Range& range, const AdamCoefficients& coefficients, float factor, InstructionSet set) {
  run_loop<AdamLoop<false>>(range, coefficients, factor, set);
}
void update_amsgrad(const Range& range, const AdamCoefficients& coefficients, float factor, InstructionSet set) {
  run_loop<AdamLoop<true>>(range, coefficients, factor, set);
}
void update_sgd(const Range& range, const SgdCoefficients& coefficients, float factor, InstructionSet set) {
  run_loop<OneMomentLoop<kernels::SgdRule>>(range, coefficients, factor, set);
}
void update_sgd_momentum(const Range& range, const SgdCoefficients& coefficients, float factor, InstructionSet set) {
  run_loop<OneMomentLoop<kernels::SgdMomentumRule>>(range, coefficients, factor, set);
}
void update_lion(const Range& range, const LionCoefficients& coefficients, float factor, InstructionSet set) {
  run_loop<OneMomentLoop<kernels::LionRule>>(range, coefficients, factor, set);
}
void update_adagrad(const Range& range, const AdagradCoefficients& coefficients, float factor, InstructionSet set) {
  run_loop<OneMomentLoop<kernels::AdagradRule>>(range, coefficients, factor, set);
}
void update_lamb(const Range& range, const LambCoefficients& coefficients, float ratio, InstructionSet set) {
  run_loop<LambLoop>(range, coefficients, ratio, set);
}

LambSums update_lamb_moments(const Range& range, const LambCoefficients& coefficients, float factor,
                             InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return lamb_moments_avx512(range, coefficients, factor);
    case InstructionSet::kAvx2:
      return lamb_moments_avx2(range, coefficients, factor);
    case InstructionSet::kBaseline:
      break;
  }
  return lamb_moments_baseline(range, coefficients, factor);
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
