// The shapes of a graph's tensors and the values of its numbers, found by running it on tensors without elements. On
// the thread that loads the model; changes no graph.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/graph/flat_graph.hpp"

namespace dslaunch::runtime::model::placement {

struct KnownValues {
  // Tensors of the model are on the meta device; those that are made of numbers alone are what they are.
  std::unordered_map<const torch::jit::Value*, c10::IValue> values;
  // Why what comes after some node is not known, as a clause; empty: all is known.
  std::string obstacle;

  const c10::IValue* find(const torch::jit::Value* value) const;
  // Of a tensor; empty: not known.
  std::optional<std::vector<int64_t>> sizes(const torch::jit::Value* value) const;
};

// What a call of a unit returns.
using CallUnit =
    std::function<Result<c10::IValue>(const torch::jit::Node* call, const std::vector<c10::IValue>& arguments)>;

// `arguments`: of forward, without self.
KnownValues find_values(const graph::FlatGraph& flat, const std::vector<c10::IValue>& arguments,
                        const CallUnit& call_unit);

at::Tensor meta_tensor(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace dslaunch::runtime::model::placement
