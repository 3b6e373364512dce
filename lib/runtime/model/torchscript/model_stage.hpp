// One stage of a loaded model: the cut of its graph together with the tables of its tensors.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/interface/model_facts.hpp"
#include "runtime/model/interface/model_tensors.hpp"
#include "runtime/model/stages/stage_graph.hpp"
#include "runtime/model/torchscript/parameter_binding.hpp"

namespace dslaunch::runtime::model::torchscript {

struct LoadedModel {
  torch::jit::Module module;
  std::vector<graph::UnitCandidate> units;
  at::ScalarType compute_dtype = at::kFloat;
  const graph::FlatGraph* flat = nullptr;  // of forward, with the calls that were inlined; null: as the module has it
};

struct ModelStage {
  StageFacts facts;
  stages::StageCall call;
};

StagePlan plan_stages(const LoadedModel& model, const StageOptions& options, const ParameterBinding& binding);

Result<LayerMeasurement> measure_layers(const LoadedModel& model, const ParameterBinding& binding,
                                        const std::vector<ExampleInput>& inputs, at::Device device);

// Replaces the graph of the model's forward, and removes from `binding` and `buffers` what the stage does not hold. A
// buffer that several stages read is held by each of them.
ModelStage cut_to_stage(const LoadedModel& model, const StageOptions& options, ParameterBinding& binding,
                        std::vector<HeldTensor>& buffers);

}  // namespace dslaunch::runtime::model::torchscript
