// The optimizers' loops over host memory, for one range of elements on the calling thread: at the speed of memory, one
// pass over each array. Each loop is compiled for three instruction sets and gives the same bits with all of them: only
// IEEE operations, no contraction, and the sums of squares keep their lanes. Ranges are independent of each other, so
// callers may split them freely. Nothing of LibTorch.
#pragma once
#include <cstdint>

#include "kernels/element_type.h"
#include "runtime/optim/coefficients.hpp"

namespace dslaunch::runtime::optim::host {

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
bool is_supported(InstructionSet set);
// The widest instruction set that this processor supports.
InstructionSet best_instruction_set();

using kernels::ElementType;

// Elements that lie in memory one after the other. No array needs more alignment than that of its elements.
struct Range {
  float* master = nullptr;
  const void* gradient = nullptr;
  ElementType gradient_type = ElementType::kFloat32;
  float* moments[kernels::kMaxMoments] = {};  // in the order of the optimizer's moment names
  uint16_t* low_precision = nullptr;          // null, or the new master rounded to low_precision_type, bf16 or fp16
  ElementType low_precision_type = ElementType::kBFloat16;
  int64_t count = 0;
};

// The part [begin, end) of a range.
Range part(const Range& range, int64_t begin, int64_t end);

// One step of an element-wise optimizer: a rule of kernels/optimizer_rules.h. `factor` multiplies the gradient.
template <class Rule>
void update(const Range& range, const typename Rule::Values& coefficients, float factor, InstructionSet set);

// LAMB's second pass; the first is update_lamb_moments. `ratio` is the trust ratio of the parameter.
void update_lamb(const Range& range, const LambCoefficients& coefficients, float ratio, InstructionSet set);
struct LambSums {
  double parameter = 0, update = 0;  // sums of squares
};
// LAMB's first pass, of an fp32 gradient: writes the moments. The order of additions depends on `count` alone.
LambSums update_lamb_moments(const Range& range, const LambCoefficients& coefficients, float factor,
                             InstructionSet set);

// In double; the order of additions depends on `count` alone.
double sum_of_squares(const float* values, int64_t count, InstructionSet set);

}  // namespace dslaunch::runtime::optim::host
