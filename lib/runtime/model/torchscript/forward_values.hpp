// Between the values that a graph takes and returns and those that the runtime knows: what forward returned, as the
// tensors that a loss takes, and what stages exchange. Pure but for autograd's graph.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <vector>

#include "runtime/model/interface/carried_values.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/stages/stage_graph.hpp"

namespace dslaunch::runtime::model::torchscript {

// Throws UserError(65) for a value without tensors.
ForwardResult unpack_result(const c10::IValue& value);

// In the order of `kinds`. Tensors that require a gradient become non-leaves, so that backward has a node at which it
// leaves the stage's first unit.
torch::jit::Stack carried_arguments(const CarriedValues& carried, const std::vector<stages::CarriedKind>& kinds);

// `value`: the tuple that a stage's graph returns.
CarriedValues unpack_carried(const c10::IValue& value, const std::vector<stages::CarriedKind>& kinds);

}  // namespace dslaunch::runtime::model::torchscript
