#include "runtime/engine/verify/replica.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/device/random_state.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/state/tensor_bytes.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::verify {
namespace {

config::JobConfig unsharded(config::JobConfig config) {
  config.zero = config::Zero{};
  config.pipeline = config::Pipeline{};
  config.graph_harvesting = false;  // state changes between micro batches: each uses that of its own rank
  return config;
}

double mean_square(std::span<const SpanState> states) {
  double squares = 0, count = 0;
  for (const auto& [span, arrays] : states) {
    squares += arrays.gradient.to(at::kDouble).square().sum().item<double>();
    count += static_cast<double>(arrays.gradient.numel());
  }
  return count > 0 ? squares / count : 0;
}

}  // namespace

Replica::Replica(const ReplicatedRun& run, comm::Communicator& single_rank_group, const GradientBound& bound)
    : device_(run.engine.device),
      bound_(bound),
      config_(unsharded(run.config)),
      model_(setup::load_model(run.model_path, config_, run.device,
                               std::make_shared<model::fusion::ProgramLog>(
                                   [](const std::string&, const std::string&) {}))),  // the run itself says it
      random_(model_->facts.table, run.model.facts.stage, device_) {
  step::EngineOptions options = run.engine;
  options.gather_group = options.secondary_group = nullptr;
  options.barrier = {};
  options.phases = {};
  options.replicated_ranks = run.num_data_ranks;
  engine_ = std::make_unique<step::Engine>(*model_, config_, options, comm::Groups::of_data_ranks(single_rank_group),
                                           setup::initial_values(*model_, config_.init, run.model_path));
  engine_->observe(*this);
  magnitudes_ = std::make_unique<GradientMagnitudes>(model_->facts.table, engine_->unit_parameters());
  model_->runnable->set_unit_parameters(magnitudes_.get());
  const auto& parameters = model_->facts.table.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) parameter_of_[parameters[i].name] = static_cast<int>(i);
  open_ranks(run);
}

void Replica::set_held(const std::string& name, const at::Tensor& value) {
  const auto buffers = model_->tensors.buffers();
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const auto& held) { return held.first == name; });
  if (found == buffers.end()) return set_frozen(parameter_of(name), value);
  for (auto& rank : ranks_) rank.buffers[static_cast<size_t>(found - buffers.begin())].copy_(value);
}

at::Tensor Replica::held(const std::string& name) const {
  const auto buffers = model_->tensors.buffers();
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const auto& held) { return held.first == name; });
  return found != buffers.end() ? found->second : model_->tensors.frozen_value(parameter_of(name));
}

void Replica::open_ranks(const ReplicatedRun& run) {
  config::Data data = config_.data;
  data.num_workers = 0;  // no loader threads for every rank of the job
  const auto buffers = model_->tensors.buffers();
  for (int rank = 0; rank < run.num_data_ranks; ++rank) {
    LoaderOptions options = run.data.loader;
    options.rank = rank;
    options.assembly.pin = false;
    RankState state;
    state.loader = std::make_unique<BatchLoader>(run.data.train, run.data.train_arrays, data, options, run.start);
    for (size_t of = static_cast<size_t>(rank); of < run.random_states.size();
         of += static_cast<size_t>(run.num_data_ranks)) {
      state.random.push_back(tensor_of_bytes(run.random_states[of]));
    }
    for (const auto& [name, buffer] : buffers) state.buffers.push_back(buffer.clone());
    ranks_.push_back(std::move(state));
  }
}

step::StepResult Replica::step() {
  const at::Tensor of_this_process = device::save_random_state(device_);
  const auto before = ranks_.front().random;
  micro_batches_ = 0;
  magnitudes_->begin_step();
  model_->runnable->set_unit_observer(random_.observer());
  auto result = engine_->train_step([this] { return next_micro_batch(); }, /*stop_requested=*/false);
  leave(ranks_.back());
  if (!result) result = engine_->finish();
  draws_random_numbers_ = !std::equal(before.begin(), before.end(), ranks_.front().random.begin(),
                                      [](const at::Tensor& a, const at::Tensor& b) { return a.equal(b); });
  device::restore_random_state(of_this_process, device_);
  steps_done_ += 1;
  return *result;
}

// In the order in which the data is dealt out: slice by slice, rank by rank.
setup::MicroBatch Replica::next_micro_batch() {
  if (micro_batches_ > 0) leave(ranks_[(micro_batches_ - 1) % ranks_.size()]);
  RankState& rank = ranks_[micro_batches_++ % ranks_.size()];
  enter(rank);
  return setup::on_device(rank.loader->next(), device_);
}

void Replica::enter(RankState& rank) {
  random_.begin(rank.random);
  auto buffers = model_->tensors.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) write_buffer(buffers[i].second, rank.buffers[i]);
}

void Replica::leave(RankState& rank) {
  rank.random = random_.end();
  const auto buffers = model_->tensors.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) rank.buffers[i] = buffers[i].second.clone();
}

// Updates copies with gradients that are wrong by the bound, in both directions.
void Replica::before_update(std::span<const SpanState> states, const step::ApplyUpdate& update) {
  const double model_size = std::sqrt(mean_square(states));
  for (auto* bound : {&lower_, &upper_}) {
    bound->clear();
    for (const auto& state : states) {
      const at::Tensor errors = gradient_errors(state, model_size);
      const StateArrays& arrays = state.arrays;
      SpanState moved{state.span, {.master = arrays.master.clone()}};
      moved.arrays.gradient = bound == &lower_ ? arrays.gradient - errors : arrays.gradient + errors;
      for (const auto& moment : arrays.moments) moved.arrays.moments.push_back(moment.clone());
      bound->push_back(std::move(moved));
    }
    update(*bound);
    for (auto& moved : *bound) moved.arrays.gradient = at::Tensor();
  }
}

// The error is also relative to a tenth of the size of the model's gradients: gradients that are zero except for
// rounding (a bias in front of a normalisation) have no size of their own to measure an error by. An element without
// any contribution is exact: embedding rows that no token uses.
at::Tensor Replica::gradient_errors(const SpanState& state, double model_size) const {
  const at::Tensor own = state.arrays.gradient.to(at::kFloat).abs(), parts = magnitudes(state);
  const double unit_size = std::sqrt(own.to(at::kDouble).square().mean().item<double>());
  const at::Tensor errors = (own + (unit_size + 0.1 * model_size)) * bound_.relative + parts * bound_.of_parts;
  return (errors + bound_.absolute).masked_fill_(parts == 0, 0);
}

at::Tensor Replica::magnitudes(const SpanState& state) const {
  const SpanState out{state.span, {.master = at::zeros_like(state.arrays.master)}};
  for (auto& piece : engine_->named_state({&out, 1})) {
    const int parameter = parameter_of_.at(piece.parameter);
    const at::Tensor& sizes = magnitudes_->of(parameter);
    if (!sizes.defined()) continue;
    piece.values.copy_(sizes.narrow(0, piece.begin, piece.values.numel()));
    // The bias of attention's keys, whose gradient is zero but for rounding. Rows of a table stay exact.
    const bool is_bias = model_->facts.table.parameters[static_cast<size_t>(parameter)].shape.size() == 1;
    if (bound_.splits_sums && is_bias) piece.values.clamp_min_(std::numeric_limits<float>::min());
  }
  return out.arrays.master;
}

Replica::State Replica::state() {
  State out{engine_->owned_state(), {}, {}};
  if (steps_done_ == 0) return out;
  out.lower = engine_->named_state(lower_);
  out.upper = engine_->named_state(upper_);
  return out;
}

int64_t replica_bytes(const ParameterTable& table, const precision::ModelDtypes& dtypes, int64_t num_moments) {
  int64_t bytes = 0, num_trainable = 0;
  for (const auto& parameter : table.parameters) {
    const int64_t numel = parameter.whole_numel();
    const auto own = static_cast<int64_t>(c10::elementSize(parameter.dtype));
    if (!parameter.trainable) {
      bytes += numel * own;
      continue;
    }
    const bool is_fp32 = dtypes(parameter.name, parameter.dtype) == at::kFloat;
    // Master, accumulated gradient, magnitude of its parts, moments; parameters in a shorter dtype; masters and moments
    // again for both bounds.
    bytes += numel * (4 + 4 + 4 + 4 * num_moments + (is_fp32 ? 0 : 2 + 4) + 2 * 4 * (1 + num_moments));
    num_trainable += numel;
  }
  return bytes + num_trainable * 4 * (1 + num_moments);  // broadcasts from the ranks
}

}  // namespace dslaunch::runtime::engine::verify
