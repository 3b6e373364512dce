// The cross entropy of rows of logits against one class each, computed in fp32 whatever the logits' type, without
// copying them: forward reads the logits once, backward reads them again and writes their gradient. Where the loss's
// own gradient is known beforehand one kernel does both, and memory is read once. See cross_entropy.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

struct CrossEntropyArguments {
  const void* logits = nullptr;  // [rows, classes]
  ElementType type = ElementType::kFloat32;
  size_t rows = 0, classes = 0;
  size_t stride = 0;                // elements from a row to the next
  const int64_t* labels = nullptr;  // [rows]: one class each; any other value but ignore_index is a device assertion
  int64_t ignore_index = -100;      // rows with this label do not count
};

// losses[row] = log(sum of exp(logits)) - logits[label], log_sums[row] = that logarithm; both 0 for ignored rows. Both
// fp32 [rows].
cudaError_t launch_cross_entropy(const CrossEntropyArguments& arguments, float* losses, float* log_sums,
                                 cudaStream_t stream);

// *total = the sum of the losses, or with `mean` divided by the number of rows that count (NaN without any); *weight =
// the factor of each row's loss in *total. The order of additions is fixed: a function of `rows` alone.
cudaError_t launch_cross_entropy_total(const CrossEntropyArguments& arguments, const float* losses, bool mean,
                                       float* total, float* weight, cudaStream_t stream);

// gradient[row][c] = (exp(logits[row][c] - log_sums[row]) - (c == label)) * *weight * *upstream, 0 in ignored rows; in
// the logits' type and with their stride, also in their place. `weight` is from launch_cross_entropy_total, `upstream`
// the gradient of the total: both fp32 on the device.
cudaError_t launch_cross_entropy_gradient(const CrossEntropyArguments& arguments, const float* log_sums,
                                          const float* weight, const float* upstream, void* gradient,
                                          cudaStream_t stream);

// launch_cross_entropy() and then launch_cross_entropy_gradient() in the place of the logits, for an upstream gradient
// of 1. Sums of a row may be added in another order.
cudaError_t launch_cross_entropy_to_gradient(const CrossEntropyArguments& arguments, const float* weight, float* losses,
                                             float* log_sums, void* logits, cudaStream_t stream);

}  // namespace dslaunch::kernels
