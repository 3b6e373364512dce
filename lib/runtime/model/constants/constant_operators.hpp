// Which operators of a graph may be evaluated once and their results kept.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime::model::constants {

// Without side effects, random numbers or uninitialized memory; the same results for the same arguments.
bool is_repeatable(const torch::jit::Node* node);
// Its results share the memory of an argument, or are numbers: evaluating it again costs next to nothing.
bool is_free(const torch::jit::Node* node);

}  // namespace dslaunch::runtime::model::constants
