// Turns a loaded model into one stage: replaces the graph of its forward by that of the stage. The modules and their
// attributes stay as they are. On the thread that loads the model, before any graph runs.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "runtime/model/stages/flat_forward.hpp"
#include "runtime/model/stages/stage_needs.hpp"

namespace dslaunch::runtime::model::stages {

enum class CarriedKind : uint8_t { kTensor, kInt, kFloat, kBool };

// What crosses a cut, leaf by leaf, in the order of the values' definition.
std::vector<CarriedKind> kinds_of(const std::vector<torch::jit::Value*>& carried);

// How the stage's forward is called: first the carried values, in the order of `carried_in`, then the arguments of the
// whole model's forward. It returns a tuple of the carried values in the order of `carried_out`; the last stage returns
// what the whole model does.
struct StageCall {
  std::vector<CarriedKind> carried_in, carried_out;
  bool is_first = true, is_last = true;
};

// `carried_out`: the values that the next stage needs; ignored for the last stage.
StageCall replace_forward_by_stage(const FlatForward& flat, const StageRange& range, const StageNeeds& needs);

}  // namespace dslaunch::runtime::model::stages
