// Runs a flattened forward on tensors without storage: the sizes of its values, and the operations of its layers. On the
// thread that loads the model; needs no memory for weights or activations.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/stage_plan.hpp"
#include "runtime/model/stages/flat_forward.hpp"

namespace dslaunch::runtime::model::stages {

struct ShapeRun {
  std::unordered_map<const torch::jit::Value*, int64_t> bytes;  // of the values asked for
  std::vector<int64_t> flops;                                   // by part
};

// `values`: of tensors and tuples of them. `part_begins`: the first nodes of the parts whose operations are counted
// separately; the first is 0. `compute_dtype`: of floating-point inputs and parameters. The module's tensors are replaced
// while it runs. An error: why it cannot run so.
Result<ShapeRun> run_on_shapes(const FlatForward& flat, const std::vector<torch::jit::Value*>& values,
                               const std::vector<size_t>& part_begins, const std::vector<ExampleInput>& inputs,
                               at::ScalarType compute_dtype);

}  // namespace dslaunch::runtime::model::stages
