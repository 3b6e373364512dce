#include "runtime/engine/step/forward_loss.hpp"

#include <utility>

#include "runtime/precision/autocast_scope.hpp"

namespace dslaunch::runtime::engine::step {

at::Tensor ForwardLoss::operator()(const setup::MicroBatch& batch) {
  const precision::AutocastScope autocast(device_, autocast_);
  std::vector<at::Tensor> arguments = batch.inputs;
  if (!loss_->takes_labels()) {
    for (auto& labels : loss_->usable(batch.labels)) arguments.push_back(std::move(labels));
  }
  return (*loss_)(model_.runnable->forward(arguments), batch.labels);
}

Result<> ForwardLoss::check_capturable() const {
  Result<> model = model_.facts.capturable;
  return model.ok() ? loss_->check_capturable() : model;
}

}  // namespace dslaunch::runtime::engine::step
