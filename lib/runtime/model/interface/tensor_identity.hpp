// Tied tensors of a model file: they are pickled separately and share their storage.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace dslaunch::runtime::model {

inline bool has_bytes(const at::Tensor& value) {
  return value.defined() && value.layout() == at::kStrided && value.has_storage() && value.numel() > 0;
}

// Identity of tensors with bytes: tensors with equal identities are the same tensor, as long as none of them is freed.
using TensorIdentity = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>, at::ScalarType>;

inline TensorIdentity identity_of(const at::Tensor& value) {
  return {value.data_ptr(), value.sizes().vec(), value.strides().vec(), value.scalar_type()};
}

}  // namespace dslaunch::runtime::model
