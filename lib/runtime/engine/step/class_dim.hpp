// Which dim of a model's outputs has the classes that labels name. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

namespace dslaunch::runtime::engine::step {

// Whether each element of `labels` belongs to a row of all dims of `outputs` but the last, as in language models.
inline bool has_classes_last(const at::Tensor& outputs, const at::Tensor& labels) {
  return outputs.dim() > 1 && outputs.sizes().slice(0, outputs.dim() - 1) == labels.sizes();
}

// Whether classes may be in dim 1, as PyTorch defines it.
inline bool has_classes_second(const at::Tensor& outputs, const at::Tensor& labels) {
  return outputs.dim() < 3 || labels.dim() < 1 || outputs.sizes().slice(2) == labels.sizes().slice(1);
}

}  // namespace dslaunch::runtime::engine::step
