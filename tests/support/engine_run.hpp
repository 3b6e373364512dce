// Some steps and an evaluation of an engine on one rank, on the data of its config.
#pragma once
#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"

namespace dslaunch::test {

struct EngineRun {
  std::vector<at::Tensor> inputs;  // the first of each micro batch
  std::vector<runtime::engine::step::StepResult> steps;
  runtime::engine::step::EvaluationResult evaluation;    // of the two micro batches after the steps
  std::vector<runtime::engine::step::OwnedState> state;  // cloned
  std::vector<std::string> activities;                   // EngineOptions::activity
};

// The parameters have the values of the model's file.
inline EngineRun run_engine(const comm::Groups& groups, runtime::model::Model& model, const config::JobConfig& config,
                            int num_steps) {
  namespace setup = runtime::engine::setup;
  namespace step = runtime::engine::step;
  EngineRun out;
  const auto data =
      setup::open_training_data(model.facts, config, groups.mesh, groups.world.rank(), at::kFloat, /*pin=*/false);
  setup::require_same_data(data, groups.world, at::kCPU);
  step::EngineOptions options;
  options.activity = [&](const std::string& activity) { out.activities.push_back(activity); };
  step::Engine engine(model, config, options, groups, [&](int parameter, int64_t begin, at::Tensor values) {
    values.copy_(model.initial.value(parameter).reshape({-1}).narrow(0, begin, values.numel()));
  });
  runtime::BatchLoader loader(data.train, data.train_arrays, config.data, data.loader, {});
  const auto next = [&] {
    auto batch = setup::on_device(loader.next(), at::kCPU);
    out.inputs.push_back(batch.inputs[0]);
    return batch;
  };
  for (int i = 0; i < num_steps; ++i) out.steps.push_back(*engine.train_step(next, /*stop_requested=*/false));
  int64_t num_left = 2;
  out.evaluation = engine.evaluate(
      [&]() -> std::optional<step::EvaluationBatch> {
        if (num_left-- == 0) return std::nullopt;
        return step::EvaluationBatch{next(), config.batch.micro_batch};
      },
      [] { return false; });
  for (auto& owned : engine.owned_state()) {
    owned.values = owned.read_all().clone();
    out.state.push_back(owned);
  }
  return out;
}

}  // namespace dslaunch::test
