// The numbers of a probe: random tensors that follow from a seed and the position of each element alone, so that every
// rank has the same ones, and how far tensors of another origin are apart. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::runtime::model::tensor_parallel {

// Fp32 on the CPU, uniform in [least, most). As fast as memory takes them: a whole unit of a large model has hundreds
// of millions.
at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, double least, double most);

struct Distance {
  double apart = 0;    // of the two elements that are the furthest apart; infinite for tensors of other sizes
  double largest = 0;  // absolute value of the finite elements of the second tensor
};

// Elements that are not finite are alike or infinitely far. A tensor that is not defined has zeros. Takes the memory
// of a block of the tensors.
Distance distance_between(const at::Tensor& found, const at::Tensor& expected);
// Distance::largest of one tensor.
double largest_of(const at::Tensor& tensor);

}  // namespace dslaunch::runtime::model::tensor_parallel
