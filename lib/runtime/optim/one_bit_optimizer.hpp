// What the optimizers have in common whose steps exchange one bit for each element instead of averaging gradients.
//
// Every rank holds all parameters. A step either takes averaged gradients and computes the same on all ranks, or each
// rank moves on with its own gradient and the ranks exchange what comes of it (OneBitAllReduce). What the exchanges
// lose is kept for the next one, and is not part of a checkpoint: it differs by rank.
//
// The numbers are those of DeepSpeed's onebit optimizers: without bias correction, and with a decay that is added to
// the update.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/optim/flat_optimizer.hpp"
#include "runtime/optim/one_bit_all_reduce.hpp"

namespace dslaunch::runtime::optim {

class OneBitOptimizer : public FlatOptimizer {
 public:
  // `exchanges_all_at_once`: what is exchanged is one tensor of all parameters; else one for each parameter, by flat
  // group.
  OneBitOptimizer(const OptimizerGroups& groups, FlatLayout layout, bool exchanges_all_at_once);

  const std::vector<std::string>& moment_names(int group) const override;
  int64_t own_state_bytes(std::span<const StateSpan> spans) const override;
  void allocate_own_state(std::span<const SpanState> states) override;
  void step(std::span<const SpanState> states, const StepInputs& inputs) const final;

 protected:
  // Whole, as all are.
  struct Parameter {
    int index = 0;  // in the table
    size_t group = 0;
    StateArrays arrays;
    const at::Tensor& moment(size_t i) const { return arrays.moments.at(i); }
  };
  // What is exchanged at once, in the order of the table.
  struct Bucket {
    int key = 0;
    std::vector<Parameter> parameters;
    OneBitAllReduce* exchange = nullptr;
  };

  virtual void step_averaged(std::span<const SpanState> states, const StepInputs& inputs) const = 0;
  virtual void step_alone(const Bucket& bucket, const StepInputs& inputs) const = 0;

  std::vector<Bucket> buckets_of(std::span<const SpanState> states) const;
  const config::Optimizer& settings_of(const Parameter& parameter) const { return groups_[parameter.group].settings; }
  double beta1_of(const Parameter& parameter, const StepInputs& inputs) const;
  double beta2_of(const Parameter& parameter, const StepInputs& inputs) const;
  double lr_of(const Parameter& parameter, const StepInputs& inputs) const;
  // fp32; the mean over this rank's micro batches, or over all ranks' where they are averaged.
  at::Tensor gradient_of(const Parameter& parameter, const StepInputs& inputs) const;
  // The first moment after a gradient.
  at::Tensor moved_momentum(const Parameter& parameter, const at::Tensor& gradient, const StepInputs& inputs) const;
  // The square root of the second moment, plus eps.
  at::Tensor denominator_of(const Parameter& parameter) const;
  // What the learning rate multiplies: the ratio of the moments and the decay.
  at::Tensor direction_of(const Parameter& parameter, const at::Tensor& momentum) const;
  // The mean over the ranks of one tensor for each parameter, in their order.
  static std::vector<at::Tensor> mean_of(const Bucket& bucket, const std::vector<at::Tensor>& values,
                                         const StepInputs& inputs);
  const ParameterInfo& info_of(int parameter) const {
    return layout_.table->parameters.at(static_cast<size_t>(parameter));
  }

  // The plain steps of both Adams.
  std::unique_ptr<FlatOptimizer> make_plain_adam() const;

  const std::vector<OptimizerGroup> groups_;
  const FlatLayout layout_;

 private:
  int key_of(int flat_group) const { return exchanges_all_at_once_ ? 0 : flat_group; }
  void require_common_start(const std::vector<Bucket>& buckets, const MomentStarts& starts) const;

  const bool exchanges_all_at_once_;
  std::map<int, std::unique_ptr<OneBitAllReduce>> exchanges_;  // by flat group, or one
};

}  // namespace dslaunch::runtime::optim
