// Attention masks that depend on a model's inputs (padding), in forms for which PyTorch has fused kernels and which take
// little memory. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/model/constants/known_masks.hpp"

namespace dslaunch::runtime::model::fused {

// Whether work on the tensor's device is captured into a CUDA graph: nothing may be read from there.
bool is_capturing(const at::Tensor& tensor);

// one & other. If both are boolean and one of them is a known mask that allows everything, the other one, expanded: the
// result must not be written to.
at::Tensor combine_masks(const at::Tensor& one, const at::Tensor& other, constants::KnownMasks& masks);

// Dims along which all entries are one get size 1, as broadcasting takes them again: kernels convert and keep a mask of
// [batch, 1, 1, keys] instead of one of [batch, 1, queries, keys].
at::Tensor without_repetitions(const at::Tensor& mask);

// An additive mask in another floating-point type. Finite numbers stay finite: where a mask forbids everything by the
// smallest number of its own type, softmax must not see -inf alone.
at::Tensor in_type(const at::Tensor& mask, at::ScalarType type);

// For CUDA: in the query's type, with neighbouring keys next to each other. PyTorch's fused kernels take no other mask,
// and cuDNN reads one of another type as if it were of the query's.
at::Tensor fit_mask(const at::Tensor& mask, at::ScalarType query_type);

}  // namespace dslaunch::runtime::model::fused
