#include "runtime/engine/step/gradient_pass.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/engine/step/backward.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

int64_t num_all_labels(const setup::MicroBatch& batch) {
  return std::max<int64_t>(1, batch.labels.at(0).numel());
}

int64_t count_forwards(const std::vector<PassAction>& actions) {
  return std::count_if(actions.begin(), actions.end(),
                       [](const PassAction& action) { return action.kind == PassAction::Kind::kForward; });
}

}  // namespace

std::vector<PassAction> plan_pass(int64_t num_micro_batches) {
  std::vector<PassAction> actions;
  for (int64_t micro = 0; micro < num_micro_batches; ++micro) {
    actions.push_back({PassAction::Kind::kForward, micro});
    actions.push_back({PassAction::Kind::kBackward, micro});
  }
  return actions;
}

GradientPass::GradientPass(Options options, LossOf loss_of, FlatParameters& parameters,
                           const precision::LossScaling& loss_scaling, StepPhases& phases)
    : options_(std::move(options)),
      loss_of_(std::move(loss_of)),
      parameters_(parameters),
      loss_scaling_(loss_scaling),
      phases_(phases),
      num_micro_batches_(count_forwards(options_.actions)) {}

// Without per-token averaging, labels are not counted.
setup::MicroBatch GradientPass::fetch(const std::function<setup::MicroBatch()>& next) {
  setup::MicroBatch batch = next();
  sums_.num_tokens += batch.num_tokens;
  if (options_.sums_over_labels) {
    sums_.label_weight += static_cast<double>(batch.num_labels) / static_cast<double>(num_all_labels(batch));
  }
  return batch;
}

void GradientPass::compute(const std::function<setup::MicroBatch()>& next) {
  sums_.loss = at::Tensor();
  std::vector<at::Tensor> open(static_cast<size_t>(num_micro_batches_));  // losses between forward and backward
  for (const auto& [kind, micro_batch] : options_.actions) {
    at::Tensor& loss = open[static_cast<size_t>(micro_batch)];
    if (kind == PassAction::Kind::kForward) {
      loss = forward(next(), /*is_last=*/micro_batch == num_micro_batches_ - 1);
    } else {
      backward(std::exchange(loss, at::Tensor()));
    }
  }
  parameters_.reduce_gradients();
}

at::Tensor GradientPass::forward(const setup::MicroBatch& batch, bool is_last) {
  parameters_.begin_accumulation_step(is_last);
  at::Tensor loss = loss_of_(batch);
  if (options_.sums_over_labels) {
    // The sum over the labels that count, divided by the number of all labels: the remaining factor to the mean over
    // counted labels is the same for all ranks, and is applied together with clipping.
    loss = loss / static_cast<double>(num_all_labels(batch));
  }
  phases_.end(StepPhase::kForward);
  if (!loss.requires_grad()) {
    throw UserError(
        ExitCode::kBadInput,
        "the loss does not depend on any trainable parameter (is it detached, or are all parameters frozen?)");
  }
  return loss;
}

void GradientPass::backward(const at::Tensor& loss) {
  const auto accumulation = static_cast<double>(options_.accumulation);
  const at::Tensor scaled = loss_scaling_.scaled(loss);
  run_backward({accumulation == 1 ? scaled : scaled / accumulation});
  parameters_.end_accumulation_step();
  phases_.end(StepPhase::kBackward);
  const at::Tensor value = loss.detach().to(at::kFloat);
  sums_.loss = sums_.loss.defined() ? sums_.loss + value : value;
}

at::Tensor GradientPass::recompute_loss(const setup::MicroBatch& batch, bool with_gradients) {
  if (!with_gradients) {
    const at::NoGradGuard no_grad;
    return loss_of_(batch).detach();
  }
  parameters_.begin_accumulation_step(/*is_last=*/false);
  const at::Tensor loss = loss_of_(batch);
  run_backward({loss});
  parameters_.end_accumulation_step();
  parameters_.release_gradients();
  return loss.detach();
}

}  // namespace dslaunch::runtime::engine::step
