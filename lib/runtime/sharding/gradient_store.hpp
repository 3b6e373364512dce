// Where the gradients of spans rest whose state is stored (StoredArrays): in files, in one of two areas. One thread at
// a time; it may be autograd's.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/state/stored_arrays.hpp"

namespace dslaunch::runtime {

class GradientStore {
 public:
  virtual ~GradientStore() = default;
  // Begins to store the gradient of a whole span: 1-D, on any device, of any floating type; it is read on the current
  // stream. Throws Error (74) for what this or an earlier write came to.
  virtual void write(const StoredArrays& span, int area, const at::Tensor& values) = 0;
  // Fills `values` (1-D, on any device, of the dtype that was written) on the current stream.
  virtual void read(StoredArrays& span, int area, const at::Tensor& values) = 0;
  // Returns when everything is stored. Waits for the device.
  virtual void finish() = 0;
};

}  // namespace dslaunch::runtime
