// 1-bit Lamb as DeepSpeed's OnebitLamb computes it: Lamb without bias correction for freeze_step steps, which also
// average the trust ratio of each parameter. After them each rank adds its own gradient to the first moment, of which
// the ranks exchange the mean as one tensor of all parameters, brought to one scale. The second moment in the
// denominator is fixed, a second one follows the gradients that the exchanged momentum implies, and the kept ratio is
// multiplied by how much the two differ, within bounds.
#include <ATen/ATen.h>

#include <map>
#include <vector>

#include "runtime/optim/algorithms.hpp"
#include "runtime/optim/one_bit_optimizer.hpp"
#include "runtime/optim/step_choice.hpp"

namespace dslaunch::runtime::optim {
namespace {

enum Moment : size_t { kMomentum, kFixed, kFresh };

at::Tensor norm_of(const at::Tensor& values) {
  return values.square().sum(at::kDouble).sqrt().to(at::kFloat);
}

// one / other where both are positive, else 1.
at::Tensor ratio_of(const at::Tensor& one, const at::Tensor& other) {
  return at::where((one > 0).logical_and(other > 0), one / other, at::ones_like(one));
}

class OneBitLamb final : public OneBitOptimizer {
 public:
  OneBitLamb(const OptimizerGroups& groups, FlatLayout layout)
      : OneBitOptimizer(groups, layout, /*exchanges_all_at_once=*/true) {}

  const std::vector<std::string>& moment_names(int) const override {
    static const std::vector<std::string> kNames = {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"};
    return kNames;
  }
  bool averages_gradients(int64_t step) const override { return step <= settings().freeze_step; }

  void allocate_own_state(std::span<const SpanState> states) override {
    OneBitOptimizer::allocate_own_state(states);
    for (const auto& bucket : buckets_of(states)) {
      for (const auto& parameter : bucket.parameters) {
        const auto fp32 = parameter.arrays.master.options();
        kept_[parameter.index] = {at::zeros({1}, fp32), at::ones({1}, fp32), at::zeros({1}, fp32)};
      }
    }
  }

  std::vector<OwnState> own_state() const override {
    std::vector<OwnState> out;
    for (const auto& [index, kept] : kept_) {
      out.push_back({index, "lamb_coeff_freeze", 0, kept.ratio});
      out.push_back({index, "last_factor", 0, kept.factor});
      out.push_back({index, "scaling_coeff", 0, kept.scale});
    }
    return out;
  }

  void restore_own_state(const ReadOwnState& read) override {
    has_scales_ = true;
    for (auto& [index, kept] : kept_) {
      kept.ratio.fill_(restored(read, index, "lamb_coeff_freeze", 0));
      kept.factor.fill_(restored(read, index, "last_factor", 1));
      const float scale = restored(read, index, "scaling_coeff", 0);
      kept.scale.fill_(scale);
      has_scales_ = has_scales_ && scale > 0;
    }
  }

 protected:
  void step_averaged(std::span<const SpanState> states, const StepInputs& inputs) const override {
    for (const auto& bucket : buckets_of(states)) {
      for (const auto& parameter : bucket.parameters) warm_up(parameter, inputs);
    }
  }

  void step_alone(const Bucket& bucket, const StepInputs& inputs) const override {
    if (!has_scales_) find_scales(bucket);
    std::vector<at::Tensor> momenta;
    for (const auto& parameter : bucket.parameters) {
      momenta.push_back(moved_momentum(parameter, gradient_of(parameter, inputs), inputs) * kept(parameter).scale);
    }
    momenta = mean_of(bucket, momenta, inputs);
    for (size_t i = 0; i < momenta.size(); ++i) {
      const Parameter& parameter = bucket.parameters[i];
      update(parameter, momenta[i] / kept(parameter).scale, inputs);
    }
  }

 private:
  struct Kept {         // of a parameter: one value each, on the device
    at::Tensor ratio;   // average of its trust ratios in the warm-up
    at::Tensor factor;  // of the last step
    at::Tensor scale;   // brings its momentum to the scale of the others; 0: not known yet
  };

  const config::Optimizer& settings() const { return groups_.front().settings; }
  const Kept& kept(const Parameter& parameter) const { return kept_.at(parameter.index); }

  static float restored(const ReadOwnState& read, int parameter, const char* name, float otherwise) {
    const at::Tensor value = at::zeros({1}, at::kFloat);
    return read(parameter, name, 0, value) ? value.item<float>() : otherwise;
  }

  void warm_up(const Parameter& parameter, const StepInputs& inputs) const {
    const double beta2 = beta2_of(parameter, inputs);
    const at::Tensor gradient = gradient_of(parameter, inputs);
    write_unless_skipped(parameter.moment(kMomentum), moved_momentum(parameter, gradient, inputs), inputs.skip);
    const at::Tensor moved = parameter.moment(kFixed) * beta2 + gradient.square() * (1.0 - beta2);
    write_unless_skipped(parameter.moment(kFixed), moved, inputs.skip);
    if (inputs.rates[0].step == settings().freeze_step) {
      write_unless_skipped(parameter.moment(kFresh), moved, inputs.skip);
    }
    const at::Tensor update = direction_of(parameter, parameter.moment(kMomentum));
    const at::Tensor norm = norm_of(parameter.arrays.master), of_update = norm_of(update);
    const at::Tensor has_ratio = (norm > 0).logical_and(of_update > 0);
    const at::Tensor bounded = ratio_of(norm, of_update).clamp(settings().min_coeff, settings().max_coeff);
    const at::Tensor ratio = at::where(has_ratio, bounded, at::ones_like(bounded));
    const double beta = settings().coeff_beta;
    const at::Tensor& average = kept(parameter).ratio;
    write_unless_skipped(average, at::where(ratio != 1, average * beta + ratio * (1.0 - beta), average), inputs.skip);
    write_parameter(parameter.arrays, parameter.arrays.master - update * (ratio * lr_of(parameter, inputs)),
                    inputs.skip);
  }

  // Once, from the momenta at the end of the warm-up.
  void find_scales(const Bucket& bucket) const {
    std::vector<at::Tensor> sizes;
    for (const auto& parameter : bucket.parameters) {
      sizes.push_back(parameter.moment(kMomentum).square().mean(at::kDouble).sqrt().to(at::kFloat));
    }
    const at::Tensor all = at::stack(sizes), mean = all.mean();
    for (size_t i = 0; i < sizes.size(); ++i) {
      kept(bucket.parameters[i]).scale.copy_(ratio_of(mean, sizes[i]));
    }
    has_scales_ = true;
  }

  void update(const Parameter& parameter, const at::Tensor& momentum, const StepInputs& inputs) const {
    const double beta1 = beta1_of(parameter, inputs), beta2 = beta2_of(parameter, inputs);
    const at::Tensor implied = (momentum - parameter.moment(kMomentum) * beta1) / (1.0 - beta1);
    const at::Tensor fresh = parameter.moment(kFresh) * beta2 + implied.square() * (1.0 - beta2);
    const at::Tensor update = direction_of(parameter, momentum);
    const at::Tensor factor = bounded_factor(parameter, momentum, fresh, update);
    const at::Tensor size = kept(parameter).ratio * factor * lr_of(parameter, inputs);
    write_unless_skipped(parameter.moment(kMomentum), momentum, inputs.skip);
    write_unless_skipped(parameter.moment(kFresh), fresh, inputs.skip);
    write_unless_skipped(kept(parameter).factor, factor, inputs.skip);
    write_parameter(parameter.arrays, parameter.arrays.master - update * size, inputs.skip);
  }

  // [1]
  at::Tensor bounded_factor(const Parameter& parameter, const at::Tensor& momentum, const at::Tensor& fresh,
                            const at::Tensor& update) const {
    const at::Tensor fixed = denominator_of(parameter);
    at::Tensor factor = (fixed / (fresh.sqrt() + settings_of(parameter).eps)).max();
    if (settings_of(parameter).weight_decay > 0) {
      const at::Tensor share = ratio_of(norm_of(momentum / fixed), norm_of(update)).clamp_max(1.0);
      factor = factor * share + (1.0 - share);
    }
    const at::Tensor& last = kept(parameter).factor;
    const double change = settings().factor_threshold;
    factor = factor.clamp(settings().factor_min, settings().factor_max).view({1});
    return factor.minimum(last * (1.0 + change)).maximum(last * (1.0 - change));
  }

  std::map<int, Kept> kept_;         // by parameter
  mutable bool has_scales_ = false;  // else they are found in the next step without averages
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_one_bit_lamb(const OptimizerGroups& groups, FlatLayout layout) {
  return std::make_unique<OneBitLamb>(groups, layout);
}

}  // namespace dslaunch::runtime::optim
