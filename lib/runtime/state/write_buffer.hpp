// Giving a model's buffer other values.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

// `values`: on any device, of the buffer's number type; not kept. A buffer whose elements share memory (one that is
// expanded in the model's file) or that has another size by now (forward may give it one) gets memory of its own.
void write_buffer(at::Tensor buffer, const at::Tensor& values);

}  // namespace dslaunch::runtime
