// Replaces PyTorch's attention in a model's graphs by layers/attention.hpp.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>

#include "runtime/model/constants/known_masks.hpp"

namespace dslaunch::runtime::model::layers {

// Attention recognizes the masks among `masks`, and so does what combines masks (`&`): a padding mask that the model
// combines with one that allows everything stays as small as it is.
void simplify_attention_masks(const torch::jit::Module& model, const std::shared_ptr<constants::KnownMasks>& masks);

// Keys and values whose heads the model repeats (expand and reshape, repeat_interleave) go to attention before the
// repetition, which attention makes itself where it has to. Returns the number of calls changed.
int group_attention_heads(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::layers
