#include "runtime/engine/step/gradient_pass.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"
#include "runtime/engine/step/backward.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

using pipeline::Action;
using pipeline::ActionKind;

int64_t count_forwards(const std::vector<Action>& actions) {
  return std::count_if(actions.begin(), actions.end(),
                       [](const Action& action) { return action.kind == ActionKind::kForward; });
}

std::string describe_parts(std::span<const Action> actions) {
  std::string out;
  for (const auto& action : actions) {
    out += fmt::format("{}{} of micro batch {}", out.empty() ? "" : ", ", name_of(action.kind), action.micro_batch);
  }
  return out;
}

}  // namespace

GradientPass::GradientPass(Options options, Forward forward, FlatParameters& parameters,
                           const precision::LossScaling& loss_scaling, StepPhases& phases, StageLink* link)
    : options_(std::move(options)),
      forward_(std::move(forward)),
      parameters_(parameters),
      loss_scaling_(loss_scaling),
      phases_(phases),
      link_(link),
      num_micro_batches_(count_forwards(options_.actions)) {
  const bool splits = std::any_of(options_.actions.begin(), options_.actions.end(),
                                  [](const Action& action) { return action.kind == ActionKind::kWeightGradient; });
  if (splits) parameters_.set_deferred_gradients(deferred_);
}

int64_t GradientPass::num_all_labels(const setup::MicroBatch& batch) const {
  const int64_t fixed = options_.labels_of_micro_batch;
  return std::max<int64_t>(1, fixed > 0 ? fixed : batch.labels.at(0).numel());
}

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
  std::vector<StagePassage> passages(static_cast<size_t>(num_micro_batches_));  // between forward and backward
  num_backwards_ = 0;
  size_t num_fetched = 0;
  const auto fetch_up_to = [&](const Action& action) {
    while (num_fetched <= static_cast<size_t>(action.micro_batch)) passages[num_fetched++].batch = next();
  };
  if (link_ != nullptr) parameters_.begin_overlapping_micro_batches();
  for (size_t i = 0; i < options_.actions.size();) {
    const auto transfers = pipeline::exchange_at(options_.actions, i);
    if (transfers.empty()) {
      const Action& action = options_.actions[i++];
      fetch_up_to(action);
      report(describe_parts({&action, 1}));
      run(action, passages[static_cast<size_t>(action.micro_batch)]);
    } else {
      // A micro batch is needed for what is received for it, in the order of the micro batches.
      for (const Action& transfer : transfers) fetch_up_to(transfer);
      report(describe_parts(transfers));
      link_->exchange(transfers, passages);
      i += transfers.size();
    }
  }
  report("the reduction of gradients");
  if (link_ != nullptr) {
    parameters_.end_accumulation_step();
    link_->finish_step();
  }
  if (!sums_.loss.defined()) sums_.loss = at::zeros({}, at::TensorOptions(options_.device).dtype(at::kFloat));
  parameters_.reduce_gradients();
}

void GradientPass::run(const Action& action, StagePassage& passage) {
  try {
    carry_out(action, passage);
  } catch (const OutOfMemoryError& error) {
    if (!options_.memory_advice) throw;
    throw OutOfMemoryError(fmt::format("{} ({})", error.failure(), describe_parts({&action, 1})),
                           options_.memory_advice());
  }
}

void GradientPass::carry_out(const Action& action, StagePassage& passage) {
  if (action.kind == ActionKind::kForward) {
    forward(action, passage);
  } else if (action.kind == ActionKind::kWeightGradient) {
    weight_gradient(action, passage);
  } else {
    backward(action, passage);
  }
}

void GradientPass::report(const std::string& activity) const {
  if (link_ != nullptr && options_.activity) options_.activity(activity);
}

void GradientPass::forward(const Action& action, StagePassage& passage) {
  if (link_ == nullptr) {
    parameters_.begin_accumulation_step(/*is_last=*/action.micro_batch + 1 == num_micro_batches_);
  } else {
    link_->wait_for(passage);
  }
  const PipelineClock::Span span(options_.clock, action);
  StageResult result = forward_(passage.batch, passage.received);
  passage.sent = std::move(result.carried);
  passage.loss = std::move(result.loss);
  if (passage.loss.defined()) take_loss(passage);
  phases_.end(StepPhase::kForward);
}

void GradientPass::take_loss(StagePassage& passage) const {
  if (options_.sums_over_labels) {
    // The sum over the labels that count, divided by the number of all labels: the remaining factor to the mean over
    // counted labels is the same for all ranks, and is applied together with clipping.
    passage.loss = passage.loss / static_cast<double>(num_all_labels(passage.batch));
  }
  if (passage.loss.requires_grad()) return;
  throw UserError(
      ExitCode::kBadInput,
      "the loss does not depend on any trainable parameter (is it detached, or are all parameters frozen?)");
}

// A unit whose weight gradients are left for later is reduced when they have come, also after the last backward.
void GradientPass::backward(const Action& action, StagePassage& passage) {
  num_backwards_ += 1;
  const bool is_last = num_backwards_ == num_micro_batches_;
  if (link_ != nullptr) {
    link_->wait_for(passage);
    if (is_last) parameters_.begin_last_backward();
  } else if (is_last && options_.before_last_backward) {
    options_.before_last_backward(loss_with(passage.loss));
  }
  const PipelineClock::Span span(options_.clock, action);
  const bool splits = action.kind == ActionKind::kInputGradient;
  if (splits) deferred_.open();
  run_backward_of(passage);
  if (splits) passage.weight_gradients = deferred_.close();
  if (link_ == nullptr) parameters_.end_accumulation_step();
  phases_.end(StepPhase::kBackward);
  if (passage.loss.defined()) sums_.loss = loss_with(passage.loss);
  passage.loss = at::Tensor();
  passage.sent = model::CarriedValues();
  passage.gradients.clear();
}

// The sum so far with that of one more micro batch.
at::Tensor GradientPass::loss_with(const at::Tensor& loss) const {
  const at::Tensor value = loss.detach().to(at::kFloat);
  return sums_.loss.defined() ? sums_.loss + value : value;
}

void GradientPass::weight_gradient(const Action& action, StagePassage& passage) {
  const PipelineClock::Span span(options_.clock, action);
  run_weight_gradients(std::move(passage.weight_gradients));
  phases_.end(StepPhase::kBackward);
}

// The gradients that a stage receives have the factors of the last stage's loss.
void GradientPass::run_backward_of(const StagePassage& passage) const {
  if (passage.loss.defined()) {
    const auto accumulation = static_cast<double>(options_.accumulation);
    const at::Tensor scaled = loss_scaling_.scaled(passage.loss);
    return run_backward({accumulation == 1 ? scaled : scaled / accumulation});
  }
  std::vector<at::Tensor> outputs;
  for (const auto& tensor : passage.sent.tensors) {
    if (tensor.requires_grad()) outputs.push_back(tensor);
  }
  if (!outputs.empty()) run_backward(outputs, passage.gradients);
}

at::Tensor GradientPass::loss_of(const setup::MicroBatch& batch, bool with_gradients) {
  at::Tensor loss;
  if (with_gradients) {
    parameters_.begin_accumulation_step(/*is_last=*/false);
    loss = run_alone(batch, with_gradients).loss;
    parameters_.end_accumulation_step();
    parameters_.release_gradients();
  } else {
    const at::NoGradGuard no_grad;
    loss = run_alone(batch, with_gradients).loss;
  }
  return loss.defined() ? loss.detach() : at::zeros({}, at::TensorOptions(options_.device).dtype(at::kFloat));
}

// No other micro batch is in the pipeline.
StagePassage GradientPass::run_alone(const setup::MicroBatch& batch, bool with_gradients) {
  using enum pipeline::ActionKind;
  const bool is_first = link_ == nullptr || link_->is_first(), is_last = link_ == nullptr || link_->is_last();
  StagePassage passage;
  passage.batch = batch;
  passage.has_backward = with_gradients;
  if (!is_first) exchange_alone(kReceiveActivation, passage);
  StageResult result = forward_(batch, passage.received);
  passage.loss = std::move(result.loss);
  passage.sent = std::move(result.carried);
  if (!is_last) exchange_alone(kSendActivation, passage);
  if (with_gradients) {
    if (!is_last) exchange_alone(kReceiveGradient, passage);
    is_last ? run_backward({passage.loss}) : run_backward_of(passage);
    if (!is_first) exchange_alone(kSendGradient, passage);
  }
  if (link_ != nullptr) link_->finish_step();
  return passage;
}

void GradientPass::exchange_alone(pipeline::ActionKind kind, StagePassage& passage) {
  const Action transfer{kind, /*micro_batch=*/0};
  link_->exchange({&transfer, 1}, {&passage, 1});
  link_->wait_for(passage);
}

}  // namespace dslaunch::runtime::engine::step
