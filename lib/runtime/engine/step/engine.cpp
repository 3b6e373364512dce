#include "runtime/engine/step/engine.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/scope_exit.hpp"
#include "runtime/engine/step/backward.hpp"
#include "runtime/engine/step/sharding_choice.hpp"
#include "runtime/optim/gradient_norm.hpp"
#include "runtime/optim/learning_rate.hpp"
#include "runtime/optim/moments.hpp"
#include "runtime/precision/autocast_scope.hpp"
#include "runtime/sharding/flat_collectives.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime {
namespace {

// Indices in the small tensor that a step sums over its ranks. The report of the loss scale follows these entries.
enum Statistic : int64_t {
  kLoss,
  kNorm,  // the squared norm, until it is summed over all ranks
  kStop,
  kLabelWeight,
  kNumStatistics
};

int64_t num_all_labels(const MicroBatch& batch) {
  return std::max<int64_t>(1, batch.labels.at(0).numel());
}

}  // namespace

Engine::Engine(Model& model, const config::JobConfig& config, EngineOptions options, comm::Communicator& data_group,
               const FlatParameters::ReadElements& read)
    : model_(model),
      config_(config),
      options_(options),
      data_group_(data_group),
      loss_(make_loss(config.loss, options.device, config.loss_average, config.kernels)),
      optimizer_groups_(optim::plan_optimizer_groups(config.optimizer, model.facts.table)),
      times_(options_.phases),
      clock_(options.device),
      loss_scaling_(config.loss_scale, options.device) {
  auto sharding = choose_sharding(model.facts.table, config, options, data_group.size());
  sharding.optimizer_groups = optimizer_groups_.of_parameter;
  parameters_ = std::make_unique<FlatParameters>(model.facts.table, std::move(sharding), data_group,
                                                 options.gather_group != nullptr ? *options.gather_group : data_group);
  parameters_->load(read);
  move_model_to_device(read);
  model_.runnable->train(true);
  optimizer_ = optim::make_flat_optimizer(optimizer_groups_, {&model.facts.table, &parameters_->groups(),
                                                              parameters_->num_shards() > 1 ? &data_group : nullptr});
  if (!options_.for_evaluation) {
    for (auto& state : parameters_->state()) optim::allocate_moments(*optimizer_, state);
  }
  round_masters();
  if (config_.graph_harvesting && !options_.for_evaluation) set_up_step_graph();
}

// Unsharded frozen parameters move with the model; parameters without values in the file get their values here.
void Engine::move_model_to_device(const FlatParameters::ReadElements& read) {
  const auto& parameters = model_.facts.table.parameters;
  std::vector<bool> is_sharded(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) is_sharded[i] = parameters_->shards_frozen(static_cast<int>(i));
  model_.to_device(options_.device, options_.dtypes, is_sharded);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int index = static_cast<int>(i);
    const auto& info = parameters[i];
    if (info.trainable || is_sharded[i] || !model_.initial.is_empty(index)) continue;
    at::Tensor values = at::empty({info.numel}, at::kFloat);
    read(index, 0, values);
    model_.tensors.set_frozen_value(
        index, values.view(info.shape).to(options_.device, options_.dtypes(info.name, info.dtype)));
  }
  model_.runnable->set_unit_parameters(parameters_.get());
}

std::optional<StepResult> Engine::train_step(const std::function<MicroBatch()>& next, bool stop_requested) {
  times_.begin_step(steps_done_ + 1);
  label_weight_ = 0;
  int64_t num_tokens = 0;
  const auto count_tokens = [&] {
    MicroBatch batch = next();
    num_tokens += batch.num_tokens;
    label_weight_ += weight_of_labels(batch);
    return batch;
  };
  if (step_graph_) {
    compute_as_graph(count_tokens);
  } else {
    compute_gradients(count_tokens);
  }
  times_.end(StepPhase::kReduce);
  combine_statistics(stop_requested);
  const double lr = rates_after(loss_scaling_.known_applied_steps()).lr;
  update_state();
  parameters_->release_gradients();
  loss_scaling_.advance();
  times_.end(StepPhase::kUpdate);
  parameters_->gather_parameters();
  times_.end(StepPhase::kGather);
  times_.end_step();
  steps_done_ += 1;
  return publish_result({.step = steps_done_, .lr = lr, .num_tokens = num_tokens});
}

// Loss and gradients of all micro batches, reduced.
void Engine::compute_gradients(const std::function<MicroBatch()>& next) {
  loss_sum_ = at::Tensor();
  const int64_t last = num_micro_batches() - 1;
  for (int64_t micro = 0; micro <= last; ++micro) forward_backward(next(), micro == last);
  parameters_->reduce_gradients();
}

// Without per-token averaging, labels are not counted.
double Engine::weight_of_labels(const MicroBatch& batch) const {
  if (config_.loss_average != config::LossAverage::kTokens) return 0;
  return static_cast<double>(batch.num_labels) / static_cast<double>(num_all_labels(batch));
}

void Engine::forward_backward(const MicroBatch& batch, bool is_last) {
  parameters_->begin_accumulation_step(is_last);
  at::Tensor loss = loss_of(batch);
  if (config_.loss_average == config::LossAverage::kTokens) {
    // The sum over the labels that count, divided by the number of all labels: the remaining factor to the mean over
    // counted labels is the same for all ranks, and is applied together with clipping.
    loss = loss / static_cast<double>(num_all_labels(batch));
  }
  times_.end(StepPhase::kForward);
  if (!loss.requires_grad()) {
    throw UserError(
        ExitCode::kBadInput,
        "the loss does not depend on any trainable parameter (is it detached, or are all parameters frozen?)");
  }
  const auto accumulation = static_cast<double>(config_.batch.accumulation);
  const at::Tensor scaled = loss_scaling_.scaled(loss);
  run_backward(accumulation == 1 ? scaled : scaled / accumulation);
  parameters_->end_accumulation_step();
  times_.end(StepPhase::kBackward);
  at::Tensor value = loss.detach().to(at::kFloat);
  loss_sum_ = loss_sum_.defined() ? loss_sum_ + value : value;
}

at::Tensor Engine::loss_of(const MicroBatch& batch) {
  const precision::AutocastScope autocast(options_.device, precision::to_torch(config_.autocast));
  std::vector<at::Tensor> arguments = batch.inputs;
  if (!loss_->takes_labels()) {
    for (auto& labels : loss_->usable(batch.labels)) arguments.push_back(std::move(labels));
  }
  return (*loss_)(model_.runnable->forward(arguments), batch.labels);
}

at::Tensor Engine::recompute_loss(const MicroBatch& batch, UnitParameters& parameters, bool with_gradients) {
  model_.runnable->set_unit_parameters(&parameters);
  const ScopeExit restore_parameters([this] { model_.runnable->set_unit_parameters(parameters_.get()); });
  at::Tensor loss;
  if (with_gradients) {
    parameters_->begin_accumulation_step(/*is_last=*/false);
    loss = loss_of(batch);
    run_backward(loss);
    parameters_->end_accumulation_step();
    parameters_->release_gradients();
  } else {
    at::NoGradGuard no_grad;
    loss = loss_of(batch);
  }
  return loss.detach();
}

// One small all-reduce per step carries the loss, the squared norm of the gradients and the stop requests. Its result
// yields the overflow verdict, the global norm and the factor that turns summed gradients into clipped means, all
// without waiting for the device.
void Engine::combine_statistics(bool stop_requested) {
  const bool contributes = parameters_->num_shards() > 1 || data_group_.rank() == 0;  // replicated gradients count once
  std::vector<at::Tensor> gradients;
  for (const auto& [span, arrays] : parameters_->state()) gradients.push_back(arrays.gradient);
  const auto scalar = loss_sum_.options();
  const at::Tensor squares = contributes
                                 ? loss_scaling_.unscaled_squares(optim::sum_of_squares(gradients)).to(at::kFloat)
                                 : at::zeros({}, scalar);
  const int num_ranks = data_group_.size() * options_.replicated_ranks;
  const double total_micro_batches = static_cast<double>(config_.batch.accumulation) * num_ranks;
  statistics_ = at::stack({loss_sum_ / total_micro_batches, squares, at::full({}, stop_requested ? 1.0 : 0.0, scalar),
                           at::full({}, label_weight_, scalar)});
  if (data_group_.size() > 1) data_group_.all_reduce(buffer_of(statistics_), comm::ReduceOp::kSum);
  const bool by_labels = config_.loss_average == config::LossAverage::kTokens;
  const at::Tensor factor = by_labels ? weigh_by_labels(total_micro_batches) : at::Tensor();
  loss_scaling_.detect_overflow(statistics_.narrow(0, kLoss, 2));
  const auto clipped = optim::clip_by_norm(statistics_.select(0, kNorm).to(at::kDouble), config_.gradient_clipping,
                                           1.0 / (parameters_->gradient_divisor() * options_.replicated_ranks));
  statistics_.select(0, kNorm).copy_(clipped.norm);
  gradient_factor_ = loss_scaling_.unscaled_factor(by_labels ? clipped.factor * factor : clipped.factor);
  if (loss_scaling_.is_on()) statistics_ = at::cat({statistics_, loss_scaling_.report()});
}

// Converts the statistics from means over all labels to means over those that count; returns the factor.
at::Tensor Engine::weigh_by_labels(double total_micro_batches) {
  const at::Tensor factor = total_micro_batches / statistics_.select(0, kLabelWeight);
  statistics_.select(0, kLoss).mul_(factor);
  statistics_.select(0, kNorm).mul_(factor).mul_(factor);
  return factor;
}

// With a loss scale the host may not know yet whether its last steps were skipped, so the device selects the learning
// rates by its own count of applied steps.
void Engine::update_state() {
  if (before_update_) before_update_();
  optim::StepInputs inputs{.applied_steps = loss_scaling_.applied_steps(),
                           .gradient_factor = gradient_factor_,
                           .skip = loss_scaling_.is_on() ? loss_scaling_.skip() : skip_after_nonfinite()};
  const int64_t applied = loss_scaling_.known_applied_steps();
  for (int64_t more = 0; more <= loss_scaling_.num_unknown_steps(); ++more)
    inputs.rates.push_back(rates_after(applied + more));
  const ApplyUpdate update = [&](std::span<SpanState> states) { optimizer_->step(states, inputs); };
  if (options_.watch_update) options_.watch_update(parameters_->state(), update);
  update(parameters_->state());
  round_masters();
}

// Without a loss scale, a non-finite value ends the run, on a device one step later; from the step with that value on,
// the parameters stay unchanged for the diagnosis.
const at::Tensor& Engine::skip_after_nonfinite() {
  const at::Tensor is_nonfinite = at::isfinite(statistics_).all().logical_not().to(at::kFloat);
  nonfinite_ = nonfinite_.defined() ? at::maximum(nonfinite_, is_nonfinite) : is_nonfinite;
  return nonfinite_;
}

// Without fp32 masters ("amp" O3) no state more precise than the parameters is kept between steps.
void Engine::round_masters() {
  if (config_.fp32_master) return;
  for (auto& [span, arrays] : parameters_->state()) {
    if (!arrays.master_is_parameter()) arrays.master.copy_(arrays.low_precision);
  }
}

optim::StepRates Engine::rates_after(int64_t applied_steps) const {
  auto rates =
      optim::step_rates(config_.scheduler, optimizer_groups_, options_.total_steps, applied_steps + schedule_offset_);
  rates.step = applied_steps + 1;  // bias correction counts from the step at which the moments were zero
  return rates;
}

std::optional<StepResult> Engine::publish_result(StepResult result) {
  if (options_.device.is_cpu()) return read_statistics({result, statistics_, clock_.mark()});
  auto previous = finish();
  // Copies to pinned memory on the stream: the copy completes well before the next step reads it.
  at::Tensor host = pinned_if_possible(statistics_.sizes(), at::kFloat);
  host.copy_(statistics_, /*non_blocking=*/true);
  in_flight_.emplace(InFlight{result, host, clock_.mark()});
  return previous;
}

std::optional<StepResult> Engine::finish() {
  if (!in_flight_) return std::nullopt;
  data_group_.wait_until([this] { return is_reached(in_flight_->arrived); });
  StepResult result = read_statistics(std::move(*in_flight_));
  in_flight_.reset();
  return result;
}

StepResult Engine::read_statistics(InFlight in_flight) {
  StepResult result = in_flight.result;
  result.step_ms = clock_.milliseconds_until(std::move(in_flight.arrived));
  const float* values = in_flight.statistics.const_data_ptr<float>();
  result.loss = values[kLoss];
  result.grad_norm = values[kNorm];
  result.stop_requested = values[kStop] > 0;
  if (loss_scaling_.is_on()) follow_loss_scale(result, values + kNumStatistics);
  // Without a loss scale every step is applied, including a step that may already be in progress.
  const int64_t since = loss_scaling_.is_on() ? 0 : steps_done_ - result.step;
  const int64_t applied = loss_scaling_.known_applied_steps() - since;
  result.num_skipped = result.step - applied - schedule_offset_;
  result.next_lr = rates_after(applied).lr;
  result.next_loss_scale = loss_scaling_.state().scale;
  return result;
}

void Engine::follow_loss_scale(StepResult& result, const float* report) {
  result.lr = rates_after(loss_scaling_.known_applied_steps()).lr;
  const auto change = loss_scaling_.follow(report);
  result.loss_scale = change.scale;
  result.overflow = change.overflow();
  result.overflow_line = describe(change);
  if (change.kind == precision::ScaleChange::Kind::kAtMinimum)
    result.diagnosis = explain_minimum(loss_scaling_.state(), result.step);
}

EvaluationResult Engine::evaluate(const std::function<std::optional<EvaluationBatch>()>& next,
                                  const std::function<bool()>& stop_requested) {
  EvaluationInputs inputs;
  inputs.next = next;
  inputs.loss_of = [this](const MicroBatch& batch) { return loss_of(batch); };
  inputs.sums_over_labels = config_.loss_average == config::LossAverage::kTokens;
  inputs.stop_requested = stop_requested;
  return runtime::evaluate(model_, inputs, data_group_, options_.device);
}

}  // namespace dslaunch::runtime
