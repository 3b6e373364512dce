// Compiled with -ffp-contract=off (see CMakeLists.txt): a fused multiply-add in the vector body but not in the tail
// would make a result depend on where a shard begins.
//
// Memory is the limit, so the loops are the compiler's and only the stores are chosen by hand. Master and moments are
// stored as they are read, through the caches: their lines are there already, and streaming them past the caches took
// 1.8 times as long. The low-precision copy is only written; streaming it saves a read of each line: 0.63 of the time.
#include "runtime/optim/host_update.hpp"

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "base/half_float.hpp"

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

constexpr int64_t kLineBytes = 64;  // of the processor's caches

// Elements that a loop takes at a time, so that their arrays stay in the first-level cache (5 KiB with a bf16 gradient)
// between the passes over them: widen the gradient, update, round the master off. Measured from 32 to 1024: shorter
// blocks cost set-up, longer ones leave the memory idle during a pass that needs none.
constexpr int64_t kBlock = 256;

DSL_INLINE int64_t bytes_of(ElementType type) {
  return type == ElementType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
}

DSL_INLINE Range part_of(const Range& range, int64_t begin, int64_t end) {
  Range out = range;
  out.master += begin;
  out.gradient = static_cast<const char*>(range.gradient) + begin * bytes_of(range.gradient_type);
  for (float*& moment : out.moments) {
    if (moment != nullptr) moment += begin;
  }
  if (out.low_precision != nullptr) out.low_precision += begin;
  out.count = end - begin;
  return out;
}

// A block as a loop sees it.
struct Block {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* moments[kernels::kMaxMoments] = {};
  int64_t count = 0;
};

// The loops: their coefficients, and run().

// A moment that the rule does not have is neither read nor written.
template <class Rule>
struct ElementLoop {
  using Coefficients = typename Rule::Values;
  DSL_INLINE static void run(const Block& block, const Coefficients& coefficients, float factor) {
    float* __restrict master = block.master;
    const float* __restrict gradient = block.gradient;
    float* __restrict first = block.moments[0];
    float* __restrict second = block.moments[1];
    float* __restrict third = block.moments[2];
    const Coefficients c = coefficients;
    const float scale = factor * c.direction;
    for (int64_t i = 0; i < block.count; ++i) {
      float p = master[i];
      float moments[kernels::kMaxMoments];
      if constexpr (Rule::kMoments > 0) moments[0] = first[i];
      if constexpr (Rule::kMoments > 1) moments[1] = second[i];
      if constexpr (Rule::kMoments > 2) moments[2] = third[i];
      Rule::update(p, gradient[i] * scale, moments, c);
      if constexpr (Rule::kMoments > 0) first[i] = moments[0];
      if constexpr (Rule::kMoments > 1) second[i] = moments[1];
      if constexpr (Rule::kMoments > 2) third[i] = moments[2];
      master[i] = p;
    }
  }
};

DSL_INLINE float lamb_update(const LambCoefficients& c, float p, float m, float v) {
  return m / (std::sqrt(v + c.eps_inside) + c.eps_outside) + c.decay * p;
}

struct LambLoop {
  using Coefficients = LambCoefficients;
  // Here the factor is the trust ratio.
  DSL_INLINE static void run(const Block& block, const LambCoefficients& coefficients, float ratio) {
    float* __restrict master = block.master;
    const float* __restrict exp_avg = block.moments[0];
    const float* __restrict exp_avg_sq = block.moments[1];
    const LambCoefficients c = coefficients;
    const float scale = c.step_size * ratio;
    for (int64_t i = 0; i < block.count; ++i) {
      const float p = master[i];
      const float updated = p - scale * lamb_update(c, p, exp_avg[i], exp_avg_sq[i]);
      master[i] = updated;
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
  const float* __restrict gradient = static_cast<const float*>(range.gradient);
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

template <float (*kValueOf)(uint16_t)>
DSL_INLINE void widen(const uint16_t* __restrict gradient, float* __restrict widened, int64_t count) {
  for (int64_t i = 0; i < count; ++i) widened[i] = kValueOf(gradient[i]);
}

// The range's gradient as fp32: where it is, or in `widened`.
DSL_INLINE const float* fp32_gradient(const Range& range, float* widened) {
  const auto* half = static_cast<const uint16_t*>(range.gradient);
  switch (range.gradient_type) {
    case ElementType::kFloat32:
      return static_cast<const float*>(range.gradient);
    case ElementType::kBFloat16:
      widen<bfloat16_value>(half, widened, range.count);
      break;
    case ElementType::kFloat16:
      widen<float16_value>(half, widened, range.count);
      break;
  }
  return widened;
}

template <uint16_t (*kBitsOf)(float)>
DSL_INLINE void round_off(const float* __restrict master, uint16_t* __restrict rounded, int64_t count) {
  for (int64_t i = 0; i < count; ++i) rounded[i] = kBitsOf(master[i]);
}

// A block's worth, past the caches: nothing here has read these lines, so an ordinary store would read them first.
// `to` begins a cache line.
DSL_INLINE void stream_block(const uint16_t* from, uint16_t* to) {
  for (int64_t i = 0; i < kBlock; i += 8) {
    const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), values);
  }
}

DSL_INLINE void store_low_precision(const Range& range) {
  alignas(kLineBytes) uint16_t rounded[kBlock];
  if (range.low_precision_type == ElementType::kBFloat16) {
    round_off<bfloat16_bits>(range.master, rounded, range.count);
  } else {
    round_off<float16_bits>(range.master, rounded, range.count);
  }
  if (range.count == kBlock) return stream_block(rounded, range.low_precision);
  for (int64_t i = 0; i < range.count; ++i) range.low_precision[i] = rounded[i];
}

// `range` has at most kBlock elements; if it has as many, its low-precision copy begins a cache line.
template <class Loop>
DSL_INLINE void run_block(const Range& range, const typename Loop::Coefficients& c, float factor) {
  alignas(kLineBytes) float widened[kBlock];
  Loop::run({range.master,
             fp32_gradient(range, widened),
             {range.moments[0], range.moments[1], range.moments[2]},
             range.count},
            c, factor);
  if (range.low_precision != nullptr) store_low_precision(range);
}

// How many elements lie before the first whole cache line.
DSL_INLINE int64_t elements_before_line(const uint16_t* low_precision) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(low_precision) % kLineBytes);
  return (kLineBytes - past) % kLineBytes / static_cast<int64_t>(sizeof(uint16_t));
}

template <class Loop>
DSL_INLINE void run_blocks(const Range& range, const typename Loop::Coefficients& c, float factor) {
  int64_t begin = std::min(elements_before_line(range.low_precision), range.count);
  if (begin > 0) run_block<Loop>(part_of(range, 0, begin), c, factor);
  for (; begin + kBlock <= range.count; begin += kBlock) {
    run_block<Loop>(part_of(range, begin, begin + kBlock), c, factor);
  }
  if (begin < range.count) run_block<Loop>(part_of(range, begin, range.count), c, factor);
  _mm_sfence();  // whoever learns that this range is done sees the streamed stores too
}

// One function for each loop and instruction set; the loops above are inlined into them and vectorized there.
template <class Loop>
void baseline(const Range& range, const typename Loop::Coefficients& c, float factor) {
  run_blocks<Loop>(range, c, factor);
}
template <class Loop>
DSL_AVX2 void avx2(const Range& range, const typename Loop::Coefficients& c, float factor) {
  run_blocks<Loop>(range, c, factor);
}
template <class Loop>
DSL_AVX512 void avx512(const Range& range, const typename Loop::Coefficients& c, float factor) {
  run_blocks<Loop>(range, c, factor);
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

template <class Loop>
void run_loop(const Range& range, const typename Loop::Coefficients& c, float factor, InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return baseline<Loop>(range, c, factor);
    case InstructionSet::kAvx2:
      return avx2<Loop>(range, c, factor);
    case InstructionSet::kAvx512:
      return avx512<Loop>(range, c, factor);
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
  return part_of(range, begin, end);
}

template <class Rule>
void update(const Range& range, const typename Rule::Values& coefficients, float factor, InstructionSet set) {
  run_loop<ElementLoop<Rule>>(range, coefficients, factor, set);
}

#define DSL_INSTANTIATE(Rule)                                                                                      \
  template void update<kernels::Rule>(const Range& range, const kernels::Rule::Values& coefficients, float factor, \
                                      InstructionSet set);
DSL_ELEMENT_RULES(DSL_INSTANTIATE)
#undef DSL_INSTANTIATE

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
