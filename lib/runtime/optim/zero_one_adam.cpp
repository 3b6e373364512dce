// 0/1 Adam as DeepSpeed's ZeroOneAdam computes it (https://arxiv.org/abs/2202.06009).
//
// Up to step var_freeze_step: Adam without bias correction, whose second moment changes at fewer and fewer steps. These
// average gradients; at the others the ranks exchange their gradients in one bit for the first moment.
//
// After it: the second moment is fixed, and ranks take steps of their own. At the end of each interval, which doubles
// up to local_step_clipper steps, they exchange how far they have moved since the last exchange (in units of the
// momentum), and all continue from the same parameters, with a momentum that follows from the mean.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/optim/algorithms.hpp"
#include "runtime/optim/one_bit_optimizer.hpp"
#include "runtime/optim/step_choice.hpp"

namespace dslaunch::runtime::optim {
namespace {

// The variance changes at `scaler` multiples of 1, then at `scaler` multiples of 2, of 4, and so on.
bool changes_variance(int64_t step, int64_t scaler) {
  int64_t interval = 1;
  for (int64_t last = scaler; last < step;) {
    interval *= 2;
    last = (last / interval + scaler) * interval;
  }
  return step % interval == 0;
}

// Of a step after the variance was fixed.
bool ends_interval(int64_t step, const config::Optimizer& settings) {
  const int64_t doublings = (step - settings.var_freeze_step - 1) / settings.local_step_scaler;
  int64_t interval = 1;
  for (int64_t i = 0; i < doublings && interval < settings.local_step_clipper; ++i) interval *= 2;
  return step % std::min(interval, settings.local_step_clipper) == 0;
}

class ZeroOneAdam final : public OneBitOptimizer {
 public:
  ZeroOneAdam(const OptimizerGroups& groups, FlatLayout layout)
      : OneBitOptimizer(groups, layout, /*exchanges_all_at_once=*/false), plain_(make_plain_adam()) {}

  bool averages_gradients(int64_t step) const override {
    return step <= settings().var_freeze_step && changes_variance(step, settings().var_update_scaler);
  }

  int64_t own_state_bytes(std::span<const StateSpan> spans) const override {
    int64_t bytes = OneBitOptimizer::own_state_bytes(spans);
    for (const auto& span : spans) {
      for (const auto& piece : pieces_in(layout_.groups->at(static_cast<size_t>(span.flat_group)), span.range)) {
        bytes += piece.count * static_cast<int64_t>(sizeof(float));
      }
    }
    return bytes;
  }

  void allocate_own_state(std::span<const SpanState> states) override {
    OneBitOptimizer::allocate_own_state(states);
    for (const auto& bucket : buckets_of(states)) {
      for (const auto& parameter : bucket.parameters) {
        common_[parameter.index] = at::zeros_like(parameter.arrays.master);
        rates_[parameter.index] = at::zeros({1}, parameter.arrays.master.options());
      }
    }
  }

  // From here on, ranks move from the parameters of the checkpoint.
  void restore_own_state(const ReadOwnState&) override { has_common_.clear(); }

 protected:
  void step_averaged(std::span<const SpanState> states, const StepInputs& inputs) const override {
    plain_->step(states, inputs);
  }

  void step_alone(const Bucket& bucket, const StepInputs& inputs) const override {
    if (inputs.rates[0].step <= settings().var_freeze_step) return exchange_gradients(bucket, inputs);
    if (!has_common_[bucket.key]) begin_interval(bucket);
    if (inputs.rates[0].step == settings().var_freeze_step + 1) bucket.exchange->forget_errors();
    std::vector<at::Tensor> moved;
    for (const auto& parameter : bucket.parameters) moved.push_back(move(parameter, inputs));
    if (ends_interval(inputs.rates[0].step, settings())) exchange_moves(bucket, moved, inputs);
  }

 private:
  const config::Optimizer& settings() const { return groups_.front().settings; }

  void exchange_gradients(const Bucket& bucket, const StepInputs& inputs) const {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : bucket.parameters) gradients.push_back(gradient_of(parameter, inputs));
    gradients = mean_of(bucket, gradients, inputs);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Parameter& parameter = bucket.parameters[i];
      const at::Tensor momentum = moved_momentum(parameter, gradients[i], inputs);
      write_unless_skipped(parameter.moment(0), momentum, inputs.skip);
      const at::Tensor update = direction_of(parameter, momentum) * lr_of(parameter, inputs);
      write_parameter(parameter.arrays, parameter.arrays.master - update, inputs.skip);
    }
  }

  // The parameters are those of all ranks now.
  void begin_interval(const Bucket& bucket) const {
    for (const auto& parameter : bucket.parameters) {
      common_.at(parameter.index).copy_(parameter.arrays.master);
      rates_.at(parameter.index).zero_();
    }
    has_common_[bucket.key] = true;
  }

  // This rank's own step. Returns its way since the last exchange, times the denominator.
  at::Tensor move(const Parameter& parameter, const StepInputs& inputs) const {
    const double lr = lr_of(parameter, inputs);
    const at::Tensor& rates = rates_.at(parameter.index);
    write_unless_skipped(rates, rates + lr, inputs.skip);
    const at::Tensor momentum = moved_momentum(parameter, gradient_of(parameter, inputs), inputs);
    write_unless_skipped(parameter.moment(0), momentum, inputs.skip);
    const at::Tensor moved = parameter.arrays.master - direction_of(parameter, momentum) * lr;
    write_parameter(parameter.arrays, moved, inputs.skip);
    return (moved - common_.at(parameter.index)) * denominator_of(parameter);
  }

  void exchange_moves(const Bucket& bucket, const std::vector<at::Tensor>& moved, const StepInputs& inputs) const {
    const auto mean = mean_of(bucket, moved, inputs);
    for (size_t i = 0; i < mean.size(); ++i) {
      const Parameter& parameter = bucket.parameters[i];
      const at::Tensor &common = common_.at(parameter.index), &rates = rates_.at(parameter.index);
      const at::Tensor has_moved = rates > 0;  // by a rate that is not 0
      write_unless_skipped(parameter.moment(0), at::where(has_moved, -mean[i] / rates, parameter.moment(0)),
                           inputs.skip);
      write_unless_skipped(common, common + mean[i] / denominator_of(parameter), inputs.skip);
      write_parameter(parameter.arrays, common, inputs.skip);
      write_unless_skipped(rates, at::zeros_like(rates), inputs.skip);
    }
  }

  const std::unique_ptr<FlatOptimizer> plain_;
  std::map<int, at::Tensor> common_;        // by parameter: as all ranks had it after the last exchange
  std::map<int, at::Tensor> rates_;         // by parameter: the sum of learning rates since then, [1]
  mutable std::map<int, bool> has_common_;  // by bucket
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_zero_one_adam(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<ZeroOneAdam>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
