// Puts quantized weights into a graph that predicts tokens. The operator
//
//     dslaunch::whole_weight(self) -> Tensor
//
// has one as an attribute of its node and returns all of it, for the linear layer behind it. Decode graphs on GPUs
// replace both by kernels that read the few bits (row_products.hpp).
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>

#include "runtime/model/decoding/quantized_weight.hpp"
#include "runtime/state/parameter_location.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::decoding {

// The parameter in a slot; nothing: another tensor.
using ParameterAt = std::function<std::optional<int>(const SlotKey& slot)>;

// `self`: the graph's first input. Weights of aten::linear, and of aten::addmm, which then is a linear layer of the
// transposed weight.
QuantizedLayers quantize_layers(torch::jit::Graph& graph, const c10::intrusive_ptr<c10::ivalue::Object>& self,
                                const ParameterTable& table, const ParameterAt& parameter_at, WeightType type);

// Of a value that dslaunch::whole_weight returns; null: another one.
QuantizedWeightPtr quantized_weight_of(const torch::jit::Value* value);

}  // namespace dslaunch::runtime::model::decoding
