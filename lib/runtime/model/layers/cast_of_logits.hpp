// Models that compute in 16 bits cast their logits to fp32 before the loss: `F.cross_entropy(logits.view(-1,
// n).float(), labels)`. An operator that reads 16 bits directly does not need that copy.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime::model::layers {

// If the first input of `user` is a cast to fp32, possibly reshaped, replaces that input by the uncast tensor in the
// same shape and removes the cast. Returns false and changes nothing if there is no such cast, if other nodes need its
// elements too, or if a node in between may write to tensors.
bool remove_cast(torch::jit::Node* user);

// Whether a node between these, which follow one another in a block, may write to tensors.
bool may_write_between(const torch::jit::Node* first, const torch::jit::Node* last);

}  // namespace dslaunch::runtime::model::layers
