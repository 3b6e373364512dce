// 1-bit Adam as DeepSpeed's OnebitAdam computes it: Adam without bias correction for freeze_step steps; after them the
// second moment is fixed, and each rank adds its own gradient to the first, of which the ranks then exchange the mean.
#include <ATen/ATen.h>

#include "runtime/optim/algorithms.hpp"
#include "runtime/optim/one_bit_optimizer.hpp"
#include "runtime/optim/step_choice.hpp"

namespace dslaunch::runtime::optim {
namespace {

class OneBitAdam final : public OneBitOptimizer {
 public:
  OneBitAdam(const OptimizerGroups& groups, FlatLayout layout)
      : OneBitOptimizer(groups, layout, /*exchanges_all_at_once=*/false), warm_up_(make_plain_adam()) {}

  bool averages_gradients(int64_t step) const override { return step <= groups_.front().settings.freeze_step; }

 protected:
  void step_averaged(std::span<const SpanState> states, const StepInputs& inputs) const override {
    warm_up_->step(states, inputs);
  }

  void step_alone(const Bucket& bucket, const StepInputs& inputs) const override {
    std::vector<at::Tensor> momenta;
    for (const auto& parameter : bucket.parameters) {
      momenta.push_back(moved_momentum(parameter, gradient_of(parameter, inputs), inputs));
    }
    momenta = mean_of(bucket, momenta, inputs);
    for (size_t i = 0; i < momenta.size(); ++i) {
      const Parameter& parameter = bucket.parameters[i];
      const at::Tensor update = direction_of(parameter, momenta[i]) * lr_of(parameter, inputs);
      write_unless_skipped(parameter.moment(0), momenta[i], inputs.skip);
      write_parameter(parameter.arrays, parameter.arrays.master - update, inputs.skip);
    }
  }

 private:
  const std::unique_ptr<FlatOptimizer> warm_up_;
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_one_bit_adam(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<OneBitAdam>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
