// From a micro batch to its loss: forward of the model, under autocast where the run asks for it, and the loss. One
// thread.
#pragma once
#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/loss.hpp"
#include "runtime/model/model.hpp"

namespace dslaunch::runtime::engine::step {

class ForwardLoss {
 public:
  // The model must outlive this object.
  ForwardLoss(model::Model& model, std::unique_ptr<Loss> loss, at::Device device,
              std::optional<at::ScalarType> autocast)
      : model_(model), loss_(std::move(loss)), device_(device), autocast_(autocast) {}

  // 0-dim: the loss that make_loss() describes.
  at::Tensor operator()(const setup::MicroBatch& batch);
  // Whether the model and the loss allow capture, as far as is known before they run.
  Result<> check_capturable() const;

 private:
  model::Model& model_;
  const std::unique_ptr<Loss> loss_;
  const at::Device device_;
  const std::optional<at::ScalarType> autocast_;
};

}  // namespace dslaunch::runtime::engine::step
