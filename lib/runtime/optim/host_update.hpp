// The optimizers' loops over host memory, for one range of elements on the calling thread. Each loop is compiled for
// three instruction sets and gives the same bits with all of them: only IEEE operations, no contraction, and the
// sums of squares keep their lanes. Ranges do not know each other, so callers may split as they like.
#pragma once
#include <cstdint>

#include "runtime/optim/coefficients.hpp"

namespace dslaunch::runtime::optim::host {

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
bool is_supported(InstructionSet set);
// The widest one that this processor has.
InstructionSet best_instruction_set();

enum class LowPrecision { kNone, kBFloat16, kFloat16 };

struct AdamRange {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  uint16_t* low_precision = nullptr;  // not read for LowPrecision::kNone
  LowPrecision low_precision_type = LowPrecision::kNone;
  int64_t count = 0;
};

struct SgdRange {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* momentum = nullptr;  // null: without
  uint16_t* low_precision = nullptr;
  LowPrecision low_precision_type = LowPrecision::kNone;
  int64_t count = 0;
};

void update_adam(const AdamRange& range, const AdamCoefficients& coefficients, float gradient_factor,
                 InstructionSet set);
void update_sgd(const SgdRange& range, const SgdCoefficients& coefficients, float gradient_factor, InstructionSet set);
// In double; the order of the additions depends on `count` alone.
double sum_of_squares(const float* values, int64_t count, InstructionSet set);

}  // namespace dslaunch::runtime::optim::host
