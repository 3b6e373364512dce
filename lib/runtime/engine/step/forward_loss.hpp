// From a micro batch to its loss: forward of the model or of a pipeline's stage, under autocast where the run asks for
// it, and the loss. One thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/engine/setup/micro_batch.hpp"
#include "runtime/engine/step/loss.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::step {

struct StageResult {
  at::Tensor loss;               // of the last stage, or the whole model; else undefined
  model::CarriedValues carried;  // to the next stage
};

class ForwardLoss {
 public:
  using ResultObserver = std::function<void(const model::ForwardResult& result, const std::vector<at::Tensor>& labels)>;

  // The model must outlive this object.
  ForwardLoss(model::Model& model, std::unique_ptr<Loss> loss, at::Device device,
              std::optional<at::ScalarType> autocast)
      : model_(model), loss_(std::move(loss)), device_(device), autocast_(autocast) {}

  // `carried`: from the stage before. The loss, 0-dim, is that which make_loss() describes.
  StageResult operator()(const setup::MicroBatch& batch, const model::CarriedValues& carried);
  // Called with the result of each forward of the whole model or of the last stage, outside of autocast and before the
  // loss; empty: nobody looks at it.
  void set_result_observer(ResultObserver observer) { observe_ = std::move(observer); }
  // The first forward logs which of the model's outputs goes to the loss, where there are several.
  void tell_outputs() { tells_outputs_ = true; }
  // Whether the model and the loss allow capture, as far as is known before they run.
  Result<> check_capturable() const;

 private:
  model::Model& model_;
  const std::unique_ptr<Loss> loss_;
  const at::Device device_;
  const std::optional<at::ScalarType> autocast_;
  ResultObserver observe_;
  bool tells_outputs_ = false;
};

}  // namespace dslaunch::runtime::engine::step
