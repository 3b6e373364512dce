#include "runtime/model/torchscript/model_stage.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/stages/plan_stages.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

stages::ModelToCut to_cut(const LoadedModel& model, const ParameterBinding& binding) {
  return {model.module, model.units, binding.table, binding.locations, model.compute_dtype, model.flat};
}

bool is_held(const std::vector<int>& holders, int stage) {
  return std::find(holders.begin(), holders.end(), stage) != holders.end();
}

void keep_parameters(ParameterBinding& binding, const stages::CutModel& cut, int stage) {
  const auto holders = cut.holders_of(binding.locations);
  ParameterBinding kept;
  for (size_t i = 0; i < holders.size(); ++i) {
    if (!is_held(holders[i], stage)) continue;
    kept.table.parameters.push_back(std::move(binding.table.parameters[i]));
    kept.values.push_back(std::move(binding.values[i]));
    kept.locations.push_back(std::move(binding.locations[i]));
  }
  kept.mutable_parameters = std::move(binding.mutable_parameters);
  binding = std::move(kept);
}

// The holders of each of these tensors; notes them in the plan.
std::vector<std::vector<int>> note_buffers(stages::CutModel& cut, const std::vector<HeldTensor>& tensors) {
  stages::LocationsByTensor locations;
  for (const auto& tensor : tensors) locations.push_back(tensor.locations);
  auto holders = cut.holders_of(locations);
  for (size_t i = 0; i < holders.size(); ++i) {
    for (int stage : holders[i]) cut.plan.stages[static_cast<size_t>(stage)].buffers.push_back(tensors[i].name);
  }
  return holders;
}

void keep_tensors(std::vector<HeldTensor>& tensors, stages::CutModel& cut, int stage) {
  const auto holders = note_buffers(cut, tensors);
  std::vector<HeldTensor> kept;
  for (size_t i = 0; i < holders.size(); ++i) {
    if (is_held(holders[i], stage)) kept.push_back(std::move(tensors[i]));
  }
  tensors = std::move(kept);
}

}  // namespace

StagePlan plan_stages(const LoadedModel& model, const StageOptions& options, const ParameterBinding& binding) {
  auto cut = stages::cut_model(to_cut(model, binding), options);
  note_buffers(cut, find_buffers(model.module));
  note_buffers(cut, binding.mutable_parameters);
  return std::move(cut.plan);
}

Result<LayerMeasurement> measure_layers(const LoadedModel& model, const ParameterBinding& binding,
                                        const std::vector<ExampleInput>& inputs, at::Device device) {
  return stages::measure_layers(to_cut(model, binding), inputs, device);
}

ModelStage cut_to_stage(const LoadedModel& model, const StageOptions& options, ParameterBinding& binding,
                        std::vector<HeldTensor>& buffers) {
  auto cut_model = stages::cut_model(to_cut(model, binding), options);
  DSL_CHECK(options.stage >= 0 && static_cast<size_t>(options.stage) < cut_model.ranges.size(),
            "the stage to load is one of the plan");
  const auto stage = static_cast<size_t>(options.stage);
  auto whole = binding.table;
  keep_parameters(binding, cut_model, options.stage);
  keep_tensors(buffers, cut_model, options.stage);
  keep_tensors(binding.mutable_parameters, cut_model, options.stage);
  auto call = stages::replace_forward_by_stage(cut_model.flat, cut_model.ranges[stage], cut_model.needs[stage]);
  return {{std::move(cut_model.plan), options.stage, std::move(whole)}, std::move(call)};
}

}  // namespace dslaunch::runtime::model::torchscript
