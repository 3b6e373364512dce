#include "runtime/engine/step/engine.hpp"

#include <ATen/ATen.h>
#include <sched.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/scope_exit.hpp"
#include "config/enum_names.hpp"
#include "file_io/storage.hpp"
#include "runtime/engine/step/sharding_choice.hpp"
#include "runtime/engine/step/stage_memory.hpp"
#include "runtime/offload/gradient_files.hpp"
#include "runtime/offload/staged_copies.hpp"
#include "runtime/offload/upload_ring.hpp"
#include "runtime/optim/moments.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

// The cores that this process may run on.
int own_cores() {
  cpu_set_t cores;
  const bool is_known = ::sched_getaffinity(0, sizeof cores, &cores) == 0;
  return is_known ? CPU_COUNT(&cores) : static_cast<int>(std::thread::hardware_concurrency());
}

TiedParameters tied_parameters(const model::ModelFacts& model, const comm::Groups& groups) {
  DSL_CHECK(model.stage.has_value() == (groups.pipe != nullptr), "a pipeline's ranks have a stage each");
  return groups.pipe != nullptr ? TiedParameters(model, *groups.pipe) : TiedParameters();
}

}  // namespace

Engine::Engine(model::Model& model, const config::JobConfig& config, EngineOptions options, const comm::Groups& groups,
               const FlatParameters::ReadElements& read)
    : model_(model),
      config_(config),
      options_(options),
      groups_(groups),
      forward_loss_(model,
                    make_loss(config.loss, options.device, config.loss_average, config.kernels,
                              model.facts.labels == LabelConvention::kSame, config.outputs),
                    options.device, precision::to_torch(config.autocast)),
      optimizer_groups_(optim::plan_optimizer_groups(config.optimizer, model.facts.table)),
      streams_(options.device, config.zero.overlap_comm),
      tied_(tied_parameters(model.facts, groups)),
      ownership_(model.facts.table, tied_, groups),
      times_(options_.phases),
      rates_(config.scheduler, optimizer_groups_, options.total_steps),
      loss_scaling_(config.loss_scale, options.device) {
  const int64_t num_moments =
      count_offloaded_moments(model.facts.table, config, optimizer_groups_, options.for_evaluation);
  auto sharding = choose_sharding(model.facts.table, config, options, groups.mesh.data, num_moments);
  sharding.optimizer_groups = optimizer_groups_.of_parameter;
  sharding.averages_gradients = [this] { return averages_gradients_; };
  sharding.tied = {tied_.trained(),
                   [this](int parameter, const at::Tensor& gradient) { tied_.sum(parameter, gradient); }};
  if (!ownership_.owns_all_shards()) {
    sharding.counted_ranges = [this](const FlatGroup& group, const StateSpan& span) {
      return ownership_.owned_ranges(group, span);
    };
  }
  if (groups.pipe != nullptr) {
    link_ = std::make_unique<StageLink>(*groups.pipe, *model.facts.stage, streams_, options.device);
    sharding.offload.reserve = reserve_together(sharding.offload.reserve);
  }
  if (offloads_to_files(config) && sharding.offload.optimizer_share > 0) {
    sharding.offload.store_state = [this, num_moments](std::span<SpanState> state) {
      return store_state(state, num_moments);
    };
  }
  sharding.offload.store_parameters = [this](std::span<const StoredSlice> slices) { return store_parameters(slices); };
  sharding.offload.copies = [this, tiers = sharding.offload.tiers](HostUse use) {
    return staged_copies(tiers[static_cast<size_t>(use)]);
  };
  update_numel_ = count_update_numel(sharding, num_moments);
  const auto offload = sharding.offload;
  parameters_ = std::make_unique<FlatParameters>(model.facts.table, std::move(sharding), streams_, groups.data,
                                                 options.gather_group != nullptr ? *options.gather_group : groups.data);
  warn_of_slow_storage();
  parameters_->load(read);
  move_model_to_device(read);
  model_.runnable->train(true);
  if (groups.contributes_loss() && groups.own.data == 0 && options.replicated_ranks == 1) forward_loss_.tell_outputs();
  const bool is_sharded = parameters_->num_shards() > 1;
  optimizer_ = optim::make_flat_optimizer(optimizer_groups_, {.table = &model.facts.table,
                                                              .groups = &parameters_->groups(),
                                                              .ranks = is_sharded ? &groups_.data : nullptr,
                                                              .tensor_ranks = groups_.tensor,
                                                              .replicas = is_sharded ? nullptr : &groups_.data,
                                                              .num_replicas = is_sharded ? 1 : groups_.data.size()});
  if (!options_.for_evaluation) allocate_moments(offload);
  pass_ = make_pass();
  verdict_ = make_verdict();
  host_updates_ = make_host_updates();
  update_ = std::make_unique<ShardUpdate>(*optimizer_, loss_scaling_, rates_, config.fp32_master, host_updates_.get());
  update_->round_masters(parameters_->state());
  if (config_.graph_harvesting != false && !options_.for_evaluation) captured_pass_ = make_captured_pass();
}

int64_t Engine::count_update_numel(const ShardingOptions& sharding, int64_t num_moments) const {
  const auto layout = plan_state_layout(model_.facts.table, sharding, groups_.data.size());
  const auto spans = offloaded_spans(layout, sharding, groups_.data.rank());
  if (spans.empty()) return 0;
  if (!offloads_to_files(config_)) return host_update_numel(config_.zero, spans);
  return offload::plan_state_file(state_file_options(config_, num_moments), spans).sub_group_numel;
}

// Stages need different amounts: the ranks of a host, which are numbered one after the other, ask for their mean.
std::function<void(int64_t)> Engine::reserve_together(std::function<void(int64_t)> reserve) const {
  return [this, reserve = std::move(reserve)](int64_t bytes) {
    const auto of_ranks = gather_values(groups_.world, options_.device, bytes);
    const int64_t first = groups_.world.rank() / options_.ranks_of_host * options_.ranks_of_host;
    const int64_t end = std::min<int64_t>(first + options_.ranks_of_host, std::ssize(of_ranks));
    const int64_t sum = std::accumulate(of_ranks.begin() + first, of_ranks.begin() + end, int64_t{0});
    reserve((sum + end - first - 1) / (end - first));
  };
}

// One rank of each host says so.
void Engine::warn_of_slow_storage() const {
  if (groups_.world.rank() % options_.ranks_of_host != 0) return;
  std::set<std::string> each;
  const auto add = [&](const std::vector<std::string>& paths) { each.insert(paths.begin(), paths.end()); };
  if (state_file_) add(config_.zero.offload_optimizer.nvme_path);
  if (parameter_file_) add(config_.zero.offload_param.nvme_path);
  for (const auto& directory : each) {
    if (const auto caution = file_io::describe_caution(file_io::find_storage(directory), directory)) {
      log::warning("offloaded state: {}", *caution);
    }
  }
}

std::shared_ptr<GradientStore> Engine::store_state(std::span<SpanState> state, int64_t num_moments) {
  std::vector<int64_t> numels;
  for (const auto& [span, arrays] : state) {
    if (arrays.is_offloaded) numels.push_back(span.numel());
  }
  if (numels.empty()) return {};
  auto options = state_file_options(config_, num_moments);
  options.wrap_queue = options_.wrap_file_queue;
  auto blocks = offload::GradientFiles::allocate_blocks(offload::plan_state_file(options, numels), options_.device);
  state_file_ = std::make_shared<offload::StateFile>(std::move(options), std::move(numels), std::move(blocks));
  size_t number = 0;
  for (auto& [span, arrays] : state) {
    if (arrays.is_offloaded) arrays.stored = offload::stored_arrays(state_file_, number++);
  }
  return std::make_shared<offload::GradientFiles>(state_file_, options_.device, check_peers());
}

std::shared_ptr<ParameterStore> Engine::store_parameters(std::span<const StoredSlice> slices) {
  auto options = parameter_file_options(config_);
  options.wrap_queue = options_.wrap_file_queue;
  std::vector<at::Tensor> blocks;
  if (update_numel_ > 0) blocks = offload::UploadRing::allocate_blocks(options_.device, update_numel_);
  parameter_file_ = std::make_shared<offload::ParameterFile>(std::move(options), slices, std::move(blocks),
                                                             options_.device, check_peers());
  return parameter_file_;
}

// Throws if a rank was lost.
std::function<void()> Engine::check_peers() const {
  return [&world = groups_.world] { world.wait_until([] { return true; }); };
}

void Engine::allocate_moments(const ShardingOptions::Offload& offload) {
  optimizer_->allocate_own_state(parameters_->state());
  const auto on_host = [&](int64_t numel) { return offload.allocate(numel, at::kFloat, HostUse::kState); };
  for (auto& state : parameters_->state()) {
    if (state.arrays.stored) {
      optim::write_initial_moments(*optimizer_, state);
    } else if (state.arrays.is_offloaded) {
      optim::allocate_moments(*optimizer_, state, on_host);
    } else {
      optim::allocate_moments(*optimizer_, state);
    }
  }
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

std::unique_ptr<GradientPass> Engine::make_pass() {
  GradientPass::Options pass;
  pass.actions = plan_actions();
  pass.accumulation = config_.batch.accumulation;
  pass.sums_over_labels = config_.loss_average == config::LossAverage::kTokens;
  pass.labels_of_micro_batch = options_.labels_of_micro_batch;
  pass.device = options_.device;
  pass.activity = options_.activity;
  pass.before_last_backward = [this](const at::Tensor& loss) { expect_early_updates(loss); };
  pass.clock = options_.pipeline_clock;
  if (model_.facts.stage) {
    pass.memory_advice = [this, num_micro_batches = pass.accumulation * options_.replicated_ranks] {
      return describe_stage_memory(*model_.facts.stage, config_.pipeline.schedule, static_cast<int>(num_micro_batches));
    };
  }
  return std::make_unique<GradientPass>(
      std::move(pass),
      [this](const setup::MicroBatch& batch, const model::CarriedValues& carried) {
        return forward_loss_(batch, carried);
      },
      *parameters_, loss_scaling_, times_, link_.get());
}

std::vector<pipeline::Action> Engine::plan_actions() const {
  return pipeline::plan_schedule(config_.pipeline.schedule, groups_.mesh.pipe, groups_.own.pipe,
                                 static_cast<int>(config_.batch.accumulation * options_.replicated_ranks));
}

std::unique_ptr<CapturedPass> Engine::make_captured_pass() {
  const bool measures = !config_.graph_harvesting.has_value(), is_observed = options_.phases.is_observed();
  if (measures && !is_measurable(config_, options_.device, is_observed)) {
    not_captured_ = check_capturable(config_, options_.device, is_observed);
    return nullptr;
  }
  CapturedPass::Options captured{.device = options_.device, .shapes_vary = options_.batch_shapes_vary};
  captured.capturable = check_capturable(config_, options_.device, is_observed);
  if (captured.capturable.ok()) captured.capturable = forward_loss_.check_capturable();
  if (measures) {
    issue_clock_ = std::make_unique<IssueClock>(options_.device);
    times_.add(*issue_clock_);
    captured.clock = issue_clock_.get();
  }
  auto pass = std::make_unique<CapturedPass>(*pass_, *parameters_, streams_, groups_.world, std::move(captured));
  if (measures || pass->check_ranks()) return pass;
  not_captured_ = pass->captured();
  return nullptr;
}

std::unique_ptr<StepVerdict> Engine::make_verdict() {
  const int num_data_ranks = groups_.mesh.data * options_.replicated_ranks;
  StepVerdict::Options verdict;
  verdict.device = options_.device;
  verdict.max_norm = config_.gradient_clipping;
  verdict.gradient_divisor = parameters_->gradient_divisor() * options_.replicated_ranks;
  verdict.total_micro_batches = static_cast<double>(config_.batch.accumulation) * num_data_ranks;
  verdict.sums_over_labels = config_.loss_average == config::LossAverage::kTokens;
  verdict.contributes_loss = groups_.contributes_loss();
  verdict.contributes_norm = owns_state();
  if (!ownership_.owns_all_shards()) {
    verdict.counted_ranges = [this](const StateSpan& span) {
      return ownership_.owned_ranges(parameters_->groups()[static_cast<size_t>(span.flat_group)], span);
    };
  }
  return std::make_unique<StepVerdict>(verdict, loss_scaling_, rates_, groups_.world);
}

int Engine::num_update_threads() const {
  return offload::choose_update_threads(own_cores(), static_cast<int>(std::thread::hardware_concurrency()),
                                        options_.ranks_of_host, config_.zero.offload_optimizer.cores_share);
}

// They copy while backward runs, and updates after it.
std::shared_ptr<MemoryTransfers> Engine::staged_copies(memory_plan::Tier tier) const {
  constexpr int kMaxThreads = 4;  // that outrun the copy engine
  if (!is_staged(tier, options_.device)) return nullptr;
  return std::make_shared<offload::StagedCopies>(options_.device, std::min(kMaxThreads, num_update_threads()),
                                                 check_peers());
}

std::unique_ptr<offload::HostUpdates> Engine::make_host_updates() {
  if (!parameters_->offloads_state()) return {};
  offload::HostUpdateOptions options;
  options.device = options_.device;
  options.chunk_numel = update_numel_;
  options.file = state_file_;
  options.parameters = parameter_file_;
  const auto& settings = config_.zero.offload_optimizer;
  options.ring = {.reads_ahead = settings.pipeline_read, .writes_behind = settings.pipeline_write};
  if (settings.delayed_update) options.delayed_after = settings.delayed_after_steps;
  options.num_threads = num_update_threads();
  options.check_peers = check_peers();
  auto updates =
      std::make_unique<offload::HostUpdates>(options, static_cast<int>(parameters_->groups().size()), streams_);
  parameters_->set_pending_updates(*updates);
  return updates;
}

std::optional<StepResult> Engine::train_step(const std::function<setup::MicroBatch()>& next, bool stop_requested) {
  times_.begin_step(steps_done_ + 1);
  for (auto* observer : observers_) observer->begin_step(steps_done_ + 1);
  if (options_.rate_scale) rates_.set_scale(options_.rate_scale(steps_done_ + 1));
  auto previous = choose_averaging();
  compute_gradients(next);
  times_.end(StepPhase::kReduce);
  const Verdict verdict = verdict_->decide(pass_->sums(), parameters_->state(), stop_requested, averages_gradients_);
  const double lr = rates_.scaled_after(loss_scaling_.known_applied_steps()).lr;
  update_->run(parameters_->state(), verdict, observers_);
  parameters_->release_gradients();
  loss_scaling_.advance();
  times_.end(StepPhase::kUpdate);
  parameters_->gather_parameters();
  times_.end(StepPhase::kGather);
  times_.end_step();
  steps_done_ += 1;
  auto published = verdict_->publish(
      {.step = steps_done_, .lr = lr, .rate_scale = rates_.scale(), .num_tokens = pass_->sums().num_tokens});
  return previous ? previous : published;
}

// By the number of applied steps. With a loss scale it depends on whether the previous step was applied, whose result
// is waited for, and returned.
std::optional<StepResult> Engine::choose_averaging() {
  if (!config::is_one_bit(config_.optimizer.type)) return std::nullopt;
  auto previous = loss_scaling_.is_on() ? verdict_->finish() : std::nullopt;
  averages_gradients_ = optimizer_->averages_gradients(loss_scaling_.known_applied_steps() + 1);
  if (!averages_gradients_ && !reported_exchange_ && groups_.data.size() > 1) {
    reported_exchange_ = true;
    if (groups_.world.rank() == 0) {
      log::info("{}: from step {} on, ranks exchange one bit for each parameter instead of averaging gradients",
                config::name_of(config::kOptimizerTypes, config_.optimizer.type), steps_done_ + 1);
    }
  }
  return previous;
}

void Engine::compute_gradients(const std::function<setup::MicroBatch()>& next) {
  pass_->begin();
  const auto fetch = [&] { return pass_->fetch(next); };
  if (captured_pass_) {
    captured_pass_->compute(fetch, steps_done_ + 1);
  } else {
    pass_->compute(fetch);
  }
}

// Micro batches of a pipeline's stages overlap, so there the end of a unit's backward is not that of its reads.
bool Engine::updates_early() const {
  if (!host_updates_ || !host_updates_->may_be_early() || !verdict_->known_factor()) return false;
  if (link_ || captured_pass_ || !config_.fp32_master) return false;
  return std::all_of(observers_.begin(), observers_.end(),
                     [](const EngineObserver* each) { return each->allows_early_updates(); });
}

void Engine::expect_early_updates(const at::Tensor& loss) const {
  if (updates_early()) update_->expect_early(*verdict_->known_factor(), loss);
}

at::Tensor Engine::recompute_loss(const setup::MicroBatch& batch, UnitParameters& parameters, bool with_gradients) {
  finish_updates();
  model_.runnable->set_unit_parameters(&parameters);
  const ScopeExit restore_parameters([this] { model_.runnable->set_unit_parameters(parameters_.get()); });
  return pass_->loss_of(batch, with_gradients);
}

EvaluationResult Engine::evaluate(const std::function<std::optional<EvaluationBatch>()>& next,
                                  const std::function<bool()>& stop_requested, Metrics* metrics) {
  finish_updates();  // now: an evaluation may have no batch for a rank
  EvaluationInputs inputs;
  bool counts = false;  // the batch that is being evaluated
  inputs.next = [&] {
    auto batch = next();
    counts = batch && batch->num_samples > 0;
    return batch;
  };
  inputs.loss_of = [this](const setup::MicroBatch& batch) { return pass_->loss_of(batch, /*with_gradients=*/false); };
  inputs.sums_over_labels = config_.loss_average == config::LossAverage::kTokens;
  inputs.stop_requested = stop_requested;
  if (metrics != nullptr) metrics->begin();
  if (metrics != nullptr && metrics->reads_results()) {
    forward_loss_.set_result_observer([&](const model::ForwardResult& result, const std::vector<at::Tensor>& labels) {
      if (counts) metrics->add(result, labels);
    });
  }
  const ScopeExit end_observation([this] { forward_loss_.set_result_observer({}); });
  EvaluationResult result = step::evaluate(model_, inputs, groups_, options_.device);
  if (metrics != nullptr && !result.stopped) result.metrics = metrics->finish(result.label_loss, groups_);
  return result;
}

}  // namespace dslaunch::runtime::engine::step
