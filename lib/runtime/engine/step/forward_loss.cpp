#include "runtime/engine/step/forward_loss.hpp"

#include <utility>

#include "base/log.hpp"
#include "runtime/precision/autocast_scope.hpp"

namespace dslaunch::runtime::engine::step {

StageResult ForwardLoss::operator()(const setup::MicroBatch& batch, const model::CarriedValues& carried) {
  std::optional<precision::AutocastScope> autocast(std::in_place, device_, autocast_);
  std::vector<at::Tensor> arguments = batch.inputs;
  if (!loss_->takes_labels()) {
    for (auto& labels : loss_->usable(batch.labels)) arguments.push_back(std::move(labels));
  }
  auto output = model_.runnable->run_stage(arguments, carried);
  const auto& stage = model_.facts.stage;
  if (stage && stage->stage + 1 < std::ssize(stage->plan.stages)) return {.carried = std::move(output.carried)};
  if (observe_) {
    autocast.reset();
    observe_(output.result, batch.labels);
    autocast.emplace(device_, autocast_);
  }
  StageResult out{.loss = (*loss_)(output.result, batch.labels), .carried = {}};
  if (std::exchange(tells_outputs_, false)) {
    const auto line = loss_->describe_choice(output.result, batch.labels);
    if (!line.empty()) log::info("{}", line);
  }
  return out;
}

Result<> ForwardLoss::check_capturable() const {
  Result<> model = model_.facts.capturable;
  return model.ok() ? loss_->check_capturable() : model;
}

}  // namespace dslaunch::runtime::engine::step
