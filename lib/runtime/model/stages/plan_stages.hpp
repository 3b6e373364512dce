// Cuts a loaded model into stages: the plan, and all that is needed to turn the model into one of them. On the thread
// that loads the model; changes nothing but the model's tensors, for the time of a run on shapes.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/interface/stage_plan.hpp"
#include "runtime/model/stages/flat_forward.hpp"
#include "runtime/model/stages/stage_needs.hpp"
#include "runtime/state/parameter_location.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::stages {

using LocationsByTensor = std::vector<std::vector<ParameterLocation>>;

struct ModelToCut {
  torch::jit::Module module;
  const std::vector<graph::UnitCandidate>& units;
  const ParameterTable& table;
  const LocationsByTensor& parameters;  // in the order of the table
  at::ScalarType compute_dtype = at::kFloat;
  const graph::FlatGraph* flat = nullptr;  // of forward; null: as the module has it
};

struct CutModel {
  StagePlan plan;
  FlatForward flat;
  // By stage.
  std::vector<StageRange> ranges;
  std::vector<StageNeeds> needs;

  // The stages that hold each of these tensors, given in the order of the module tree.
  std::vector<std::vector<int>> holders_of(const LocationsByTensor& tensors) const;
};

// For StageOptions::measurement, on one rank. `model.module`'s graphs have the constants of the device. An error: why
// the model cannot be measured. Throws as cut_model() does.
Result<LayerMeasurement> measure_layers(const ModelToCut& model, const std::vector<ExampleInput>& inputs,
                                        at::Device device);

// Throws UserError(65): more stages than layers, a forward that cannot be cut there or whose code cannot be followed, a
// stage without trainable parameters, an unknown partition method.
CutModel cut_model(const ModelToCut& model, const StageOptions& options);

}  // namespace dslaunch::runtime::model::stages
