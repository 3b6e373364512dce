// A LAMB step over flat fp32 arrays in two passes, since a parameter's update is scaled by the ratio of two norms over
// the whole parameter. A call covers one parameter's part of a shard; between the passes the caller combines the sums
// of several ranks. The formulas: optimizer_rules.h. See lamb.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"
#include "kernels/optimizer_rules.h"
#include "kernels/step_control.h"

namespace dslaunch::kernels {

struct LambArguments {
  float* master = nullptr;         // read by the first pass, updated by the second
  const void* gradient = nullptr;  // first pass
  ElementType gradient_type = ElementType::kFloat32;
  float* exp_avg = nullptr;  // updated by the first pass, read by the second
  float* exp_avg_sq = nullptr;
  void* low_precision = nullptr;  // second pass: null, or the new master rounded to low_precision_type
  ElementType low_precision_type = ElementType::kBFloat16;
  size_t count = 0;
  StepControl control;
  Coefficients<LambCoefficients> coefficients;
};

// Two sums of squares, in double: of the parameter and of its update.
struct LambSums {
  double parameter = 0, update = 0;
};

// The number of partial sums that the first pass writes for a part of `count` elements; 0 for an empty part.
size_t num_lamb_partials(size_t count);

// First pass; writes num_lamb_partials(count) entries, or none when the step is skipped. Enqueues on `stream`.
cudaError_t launch_lamb_moments(const LambArguments& arguments, LambSums* partials, cudaStream_t stream);

// sums[i] = the sum of partials[ends[i - 1]] to partials[ends[i] - 1], from 0 for the first. `ends` on the device.
cudaError_t launch_lamb_sums(const LambSums* partials, const int64_t* ends, size_t num_sums, LambSums* sums,
                             cudaStream_t stream);

// ratios[i] from the sum over r of sums[r * num_parameters + i], r = 0 to num_ranks - 1 in this order.
cudaError_t launch_lamb_ratios(const LambSums* sums, size_t num_ranks, size_t num_parameters, float min_ratio,
                               float max_ratio, float* ratios, cudaStream_t stream);

// Second pass; `ratio` is one float on the device. Alignment and a count of 0 as for launch_element_step, in both
// passes.
cudaError_t launch_lamb(const LambArguments& arguments, const float* ratio, cudaStream_t stream);

}  // namespace dslaunch::kernels
