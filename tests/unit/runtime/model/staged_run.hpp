// A model that runs as stages of a pipeline, one after the other on this thread, and whole. Not for several threads.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "script_fixtures.hpp"

namespace dslaunch::test {

class StagedRun {
 public:
  using Model = runtime::model::Model;

  // `units`: see load_script_model().
  StagedRun(const torch::jit::Module& net, const runtime::model::StageOptions& options,
            const std::vector<std::string>& units = {"Block"}, bool gives_frozen = false,
            const std::optional<runtime::model::RecomputationOptions>& recomputation = {})
      : whole(net, units, gives_frozen) {
    for (int stage = 0; stage < options.num_stages; ++stage) {
      auto of_stage = options;
      of_stage.stage = stage;
      stages.push_back(runtime::model::torchscript::load_script_stage(whole.path(), units, {}, of_stage));
      auto& model = *stages.back();
      if (recomputation) summaries.push_back(model.runnable->set_recomputation(*recomputation));
      model.to_device(
          at::kCPU, [](const std::string&, at::ScalarType own) { return own; },
          std::vector<bool>(model.facts.table.parameters.size(), gives_frozen));
      gathered.push_back(std::make_unique<GatheredUnits>(model, gives_frozen));
      model.runnable->set_unit_parameters(gathered.back().get());
    }
  }

  const runtime::model::StagePlan& plan() const { return stages.front()->facts.stage->plan; }

  // What a stage would receive: the values alone.
  static runtime::model::CarriedValues received(const runtime::model::CarriedValues& sent) {
    const auto layout = runtime::model::decode(runtime::model::encode(runtime::model::layout_of(sent)));
    auto out = runtime::model::allocate(layout, at::kCPU);
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < sent.tensors.size(); ++i) out.tensors[i].copy_(sent.tensors[i]);
    return out;
  }

  // Forward through all stages; keeps what backward needs.
  runtime::model::ForwardResult forward(const std::vector<at::Tensor>& inputs) {
    sent.assign(stages.size(), {});
    given.assign(stages.size(), {});
    torch::manual_seed(ModelRun::kSeed);
    runtime::model::ForwardResult result;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      if (stage > 0) given[stage] = received(sent[stage - 1]);
      // A stage reads no other inputs than the plan says.
      std::vector<at::Tensor> read(inputs.size());
      for (size_t input : plan().stages[stage].inputs) read[input] = inputs[input].clone();
      auto output = stages[stage]->runnable->run_stage(read, given[stage]);
      sent[stage] = std::move(output.carried);
      result = std::move(output.result);
    }
    return result;
  }

  void backward(const at::Tensor& loss) {
    loss.backward();
    for (size_t stage = stages.size() - 1; stage-- > 0;) {
      std::vector<at::Tensor> outputs, gradients;
      for (size_t i = 0; i < sent[stage].tensors.size(); ++i) {
        const auto& gradient = given[stage + 1].tensors[i].grad();
        if (!sent[stage].tensors[i].requires_grad() || !gradient.defined()) continue;
        outputs.push_back(sent[stage].tensors[i]);
        gradients.push_back(gradient);
      }
      torch::autograd::backward(outputs, gradients);
    }
  }

  // The gradients of a parameter that several stages hold are added up, those of the last stage first.
  StepNumbers step(const std::vector<at::Tensor>& inputs) {
    const auto loss = forward(inputs).first;
    backward(loss);
    StepNumbers out{loss.detach(), {}};
    for (size_t stage = stages.size(); stage-- > 0;) {
      for (auto& [name, gradient] : std::exchange(gathered[stage]->gradients, {})) {
        auto& sum = out.gradients[name];
        sum = sum.defined() ? sum + gradient : gradient;
      }
      CHECK(gathered[stage]->num_held() == 0);
    }
    return out;
  }

  // A step gives the bits of the whole model's.
  void check_step(const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> copies;
    for (const auto& input : inputs) copies.push_back(input.clone());
    check_same(step(inputs), whole.step(copies));
  }

  ModelRun whole;
  std::vector<std::string> summaries;  // of the stages' recomputation
  std::vector<std::unique_ptr<Model>> stages;
  std::vector<std::unique_ptr<GatheredUnits>> gathered;
  std::vector<runtime::model::CarriedValues> sent, given;  // by stage, of the last forward
};

}  // namespace dslaunch::test
