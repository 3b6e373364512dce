// From operators of TorchScript to nodes of a region. Any thread.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>

#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::runtime::model::fusion {

// Whether the operator can be part of a region for some inputs: elementwise, a cast, a sum or maximum over the last
// dim, a cut or a joint of the last dim, a norm or softmax of it.
bool is_fusible(const torch::jit::Node* node);

// What is known of the values of a graph when its inputs are.
struct KnownValues {
  // Of a tensor: one of the device "meta" with its sizes, strides and dtype, except for constants, which are
  // themselves. Of anything else: the value.
  std::function<const c10::IValue&(const torch::jit::Value*)> value;
  // The region's value of a tensor that is not a constant of one element; appends an input for one from outside.
  std::function<Id(const torch::jit::Value*)> id;
};

// Whether the node fits a region over the rows of its result: its result and operands are floating-point or boolean,
// its result has two dims or more, and its arguments are such that lower() knows the operator.
bool fits(const torch::jit::Node* node, const KnownValues& known);

// Appends a node that fits. Nothing: it does not fit.
std::optional<Id> lower(const torch::jit::Node* node, const KnownValues& known, Builder& build);

}  // namespace dslaunch::runtime::model::fusion
