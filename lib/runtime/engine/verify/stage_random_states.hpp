// The random numbers of a pipeline's ranks in one process that computes the whole model: each stage's layers draw from
// the state of the rank that has them. A stage begins with its first unit: what it draws before, in layers that are not
// units, is drawn from the stage before. One thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "runtime/model/interface/model_facts.hpp"
#include "runtime/model/interface/runnable_model.hpp"

namespace dslaunch::runtime::engine::verify {

class StageRandomStates : private model::UnitObserver {
 public:
  // `whole`: of the model that runs. `stage`: how the run cuts it; empty: not at all.
  StageRandomStates(const ParameterTable& whole, const std::optional<model::StageFacts>& stage, at::Device device);

  // What the model is to have as its observer; null where there is one stage.
  model::UnitObserver* observer() { return num_stages_ > 1 ? this : nullptr; }
  // Before the forward of a micro batch: the states of the stages' ranks. Then after it: their new states.
  void begin(std::vector<at::Tensor> states);
  std::vector<at::Tensor> end();

 private:
  void on_enter(int unit, const std::vector<at::Tensor>& inputs) override;
  void on_exit(int /*unit*/, const std::vector<at::Tensor>& /*outputs*/) override {}
  void go_to(size_t stage);

  struct Layer {
    int unit = -1;  // -1: it is not a unit
    size_t stage = 0;
  };

  // fixed after construction
  const at::Device device_;
  size_t num_stages_ = 1;
  std::vector<Layer> layers_;  // in the order of their calls
  // of the micro batch
  std::vector<at::Tensor> states_;
  size_t stage_ = 0;
  size_t next_layer_ = 0;
};

}  // namespace dslaunch::runtime::engine::verify
