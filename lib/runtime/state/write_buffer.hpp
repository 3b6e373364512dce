// Assigns new values to a model's buffer.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime {

// `values`: on any device, of the buffer's number type; not kept. The buffer gets new memory if its elements share
// memory (it is expanded in the model's file) or if its size has changed (forward may have resized it).
void write_buffer(at::Tensor buffer, const at::Tensor& values);

}  // namespace dslaunch::runtime
