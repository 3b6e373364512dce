// The values of a model's parameters in its file. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace dslaunch::runtime::model {

// Whether all elements of the tensor share one place in memory: a parameter that was exported without values.
bool is_stride_zero(const at::Tensor& value);

class InitialValues {
 public:
  // `values`: by parameter.
  explicit InitialValues(std::vector<at::Tensor> values) : values_(std::move(values)) {}

  // On the host, read-only; for an empty parameter a tensor with all strides 0.
  const at::Tensor& value(int parameter) const { return values_.at(static_cast<size_t>(parameter)); }
  bool is_empty(int parameter) const { return is_stride_zero(value(parameter)); }

 private:
  std::vector<at::Tensor> values_;
};

}  // namespace dslaunch::runtime::model
