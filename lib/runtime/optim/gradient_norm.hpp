// The global gradient norm and the clipping factor. Results are 0-dim tensors on the gradients' device: on CUDA nothing
// here waits for the device. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::runtime::optim {

// The sum of the squares of all elements of `values` (fp32, bf16 or fp16, 1-D, contiguous, on one device, at least one
// tensor), added up in double: 0-dim fp64. The order of additions depends on the lengths, on CUDA also on the types and
// on the addresses modulo 16 (kernels/sum_of_squares.h), so the result is the same bit by bit for any number of threads
// and on any device of one kind.
at::Tensor sum_of_squares(at::TensorList values);

// The same on the host for values that come piece by piece: those of each tensor in pieces whose lengths are multiples
// of kSquaresBlock, but for its last.
inline constexpr int64_t kSquaresBlock = 8192;
class HostSquares {
 public:
  void add(const at::Tensor& values);
  at::Tensor sum() const;

 private:
  std::vector<double> sums_;  // of blocks
};

struct ClippedNorm {
  at::Tensor norm;    // 0-dim fp64: the norm of the scaled gradient, before clipping
  at::Tensor factor;  // 0-dim fp32: multiplies the raw gradient, `gradient_scale` included
};

// `sum_of_squares` (0-dim fp64) over all ranks' shards of the raw gradient; `gradient_scale` turns the raw gradient
// into the gradient (1 over the number of averaged parts, for example). DeepSpeed's clipping: with r = (norm + 1e-6) /
// max_norm, the gradient is divided by r where r > 1. A max_norm of 0 disables clipping.
ClippedNorm clip_by_norm(const at::Tensor& sum_of_squares, double max_norm, double gradient_scale = 1.0);

}  // namespace dslaunch::runtime::optim
