// Models that compute in 16 bits cast their logits to fp32 before the loss: `F.cross_entropy(logits.view(-1,
// n).float(), labels)`. An operator that reads 16 bits itself can do without that copy.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime {

// When the first input of `user` is a cast to fp32, or such a cast in another shape, gives `user` what was cast in that
// shape instead, and removes the cast. False, and nothing done, where there is none, where others need its elements
// too, or where something in between may write to tensors.
bool take_cast_off(torch::jit::Node* user);

}  // namespace dslaunch::runtime
