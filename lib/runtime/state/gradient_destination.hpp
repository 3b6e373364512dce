// Where a backward writes a part of a parameter's gradient itself, so that it is not copied there. Plain data.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

struct GradientDestination {
  at::Tensor sum;         // in the parameter's shape, contiguous; its type may be wider than the gradient's
  bool is_empty = false;  // it holds nothing yet, and is overwritten; else the part is added
};

}  // namespace dslaunch::runtime
