// The function table that the CUDA module provides for this room. dsworker does not link CUDA: the first step on a GPU
// loads the module.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/model/decoding/quantized_weight.hpp"

namespace dslaunch::runtime::model::decoding {

// Attention of one new token of each text over its kept keys and values.
struct StepAttention {
  at::Tensor query, key, value;       // [1, heads or key heads, texts, width], of one type
  at::Tensor key_pages, value_pages;  // [pages, key heads, KeyCache::kPageTokens, width], contiguous
  at::Tensor page_table;              // int32 [texts, pages of a text], contiguous
  at::Tensor positions;               // int64 [texts]: of the new tokens
  std::optional<at::Tensor> mask;     // [.., heads or 1, texts or 1, keys or 1]: bools, or of the type and added
  double scale = 1;
  bool overlaps = false;  // device::overlaps_launches(): positions, page_table and older keys were written long before
};

struct DecodingFunctions {
  // Enqueues it on the current stream: puts the new keys and values into their pages and fills `out` [texts, heads,
  // width]. `tickets`: int32, zeros, which are zeros again afterwards. False, with nothing done: the kernel does not
  // take these sizes and addresses.
  bool (*attend)(const StepAttention& attention, const at::Tensor& tickets, const at::Tensor& out);
  // input [rows, columns], weights [outputs of each, columns], biases [outputs] or undefined, of one type and
  // contiguous
  // -> outs [rows, outputs]. False, with nothing done: as above.
  // `overlaps`: device::overlaps_launches(); weights and biases were written long before.
  bool (*multiply_rows)(const at::Tensor& input, at::TensorList weights, at::TensorList biases, at::TensorList outs,
                        bool overlaps);
  // The same with weights of one QuantizedWeight::type, and input, biases and outs of one 16-bit type.
  bool (*multiply_quantized_rows)(const at::Tensor& input, const std::vector<QuantizedWeightPtr>& weights,
                                  at::TensorList biases, at::TensorList outs, bool overlaps);
  // Fills `out` [outputs, columns], contiguous: QuantizedWeight::whole().
  void (*expand)(const QuantizedWeight& weight, const at::Tensor& out);
};

}  // namespace dslaunch::runtime::model::decoding
