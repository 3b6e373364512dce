#include "runtime/engine/verify/stage_random_states.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/device/random_state.hpp"

namespace dslaunch::runtime::engine::verify {
namespace {

int unit_of(const ParameterTable& table, const std::string& path) {
  const auto found =
      std::find_if(table.units.begin(), table.units.end(), [&](const UnitInfo& unit) { return unit.name == path; });
  return found == table.units.end() ? -1 : static_cast<int>(found - table.units.begin());
}

}  // namespace

StageRandomStates::StageRandomStates(const ParameterTable& whole, const std::optional<model::StageFacts>& stage,
                                     at::Device device)
    : device_(device) {
  if (!stage) return;
  num_stages_ = stage->plan.stages.size();
  for (size_t s = 0; s < num_stages_; ++s) {
    const auto& planned = stage->plan.stages[s];
    for (size_t i = 0; i < planned.num_layers; ++i) {
      layers_.push_back({unit_of(whole, stage->plan.layers[planned.first_layer + i].path), s});
    }
  }
}

void StageRandomStates::begin(std::vector<at::Tensor> states) {
  states_ = std::move(states);
  stage_ = next_layer_ = 0;
  device::restore_random_state(states_.front(), device_);
}

std::vector<at::Tensor> StageRandomStates::end() {
  states_[stage_] = device::save_random_state(device_);
  return std::exchange(states_, {});
}

// A unit may be called in several stages: its calls come in the order of the layers.
void StageRandomStates::on_enter(int unit, const std::vector<at::Tensor>&) {
  for (size_t i = next_layer_; i < layers_.size(); ++i) {
    if (layers_[i].unit != unit || unit == 0) continue;
    next_layer_ = i + 1;
    return go_to(layers_[i].stage);
  }
}

void StageRandomStates::go_to(size_t stage) {
  if (stage == stage_) return;
  states_[stage_] = device::save_random_state(device_);
  stage_ = stage;
  device::restore_random_state(states_[stage_], device_);
}

}  // namespace dslaunch::runtime::engine::verify
