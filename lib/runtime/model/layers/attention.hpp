// Attention that recognizes what its mask says, and that repeats heads of keys and values only where no fused kernel
// takes them as they are; and what puts it into graphs.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/model/constants/known_masks.hpp"
#include "runtime/model/layers/attention_mask.hpp"

namespace dslaunch::runtime::model::layers {

struct AttentionOptions {
  std::optional<at::Tensor> mask;
  double dropout = 0;
  bool is_causal = false;
  std::optional<double> scale;
  bool enable_gqa = false;  // key and value have fewer heads than the query: a head serves a group of query heads
  int64_t repeats = 1;      // key and value are repeated along dim 1 first, each entry this many times in a row
  ConvertedMasks* converted = nullptr;  // of the model, for CUDA; null: PyTorch converts masks in every call
};

// As scaled_dot_product_attention. `masks`: the model's known masks; null: masks are taken as they are. A known mask
// that is causal becomes is_causal, and one that allows everything is left out: fused kernels without a mask are
// faster, and compute the same up to the order of additions. Another mask gets a form that fused kernels take
// (attention_mask.hpp). Heads are repeated only where PyTorch has no fused kernel that takes them in groups.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, AttentionOptions options,
                     constants::KnownMasks* masks);

// Attention recognizes the masks among `masks`, and so does what combines masks (`&`): a padding mask that the model
// combines with one that allows everything stays as small as it is.
void simplify_attention_masks(const torch::jit::Module& model, const std::shared_ptr<constants::KnownMasks>& masks);

// Keys and values whose heads the model repeats (expand and reshape, repeat_interleave) go to attention before the
// repetition, which attention makes itself where it has to. Returns the number of calls changed.
int group_attention_heads(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
