#include "runtime/engine/run/trainer.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/input_wait.hpp"
#include "base/log.hpp"
#include "base/quantity.hpp"
#include "base/status_page.hpp"
#include "base/wall_clock.hpp"
#include "config/difficulty.hpp"
#include "runtime/device/fp8.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/diagnosis/step_snapshots.hpp"
#include "runtime/engine/plan/estimate_activations.hpp"
#include "runtime/engine/plan/require_memory.hpp"
#include "runtime/engine/run/checkpointing.hpp"
#include "runtime/engine/run/evaluation_decisions.hpp"
#include "runtime/engine/run/resolved_config.hpp"
#include "runtime/engine/run/run_evaluation.hpp"
#include "runtime/engine/run/run_log.hpp"
#include "runtime/engine/run/step_monitors.hpp"
#include "runtime/engine/run/store_barrier.hpp"
#include "runtime/engine/setup/device_batches.hpp"
#include "runtime/engine/setup/device_warm_up.hpp"
#include "runtime/engine/setup/file_verification.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/load_model.hpp"
#include "runtime/engine/setup/saved_tensors.hpp"
#include "runtime/engine/setup/training_data.hpp"
#include "runtime/engine/step/engine.hpp"
#include "runtime/engine/step/sharding_choice.hpp"
#include "runtime/engine/verify/verification.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

std::vector<std::string> names_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, value] : tensors) names.push_back(name);
  return names;
}

// Says how many positions the units of random_ltd keep; DeepSpeed counts the steps done before.
class KeptPositions : public step::EngineObserver {
 public:
  KeptPositions(model::RunnableModel& model, const config::Difficulty& kept) : model_(model), kept_(kept) {}
  void begin_step(int64_t step) override { model_.keep_positions(step, config::difficulty_at(kept_, step - 1)); }
  bool allows_early_updates() const override { return true; }

 private:
  model::RunnableModel& model_;
  const config::Difficulty& kept_;
};

// One training run; its members are constructed in the order of their declaration.
class Training {
 public:
  Training(const TrainRequest& request, const comm::Groups& groups, rendezvous::Store& store)
      : request_(request),
        config_(request.config),
        store_(store),
        device_(request.device->at()),
        files_(setup::files_to_verify(request.model_path, config_),
               {request.placement.local_rank, request.placement.local_world_size}),
        warm_up_(device_,
                 precision::choose_precision(config_.precision, config_.keep_batch_norm, device_).compute_dtype),
        monitors_(request.config, {groups.world.rank(), groups.mesh, device_, request.run_dir, request.trace_step}),
        groups_(monitors_.observe(groups)),
        gather_group_(observed(request.gather_group, "gather")),
        secondary_group_(observed(request.secondary_group, "hpz")),
        programs_(std::make_shared<model::fusion::ProgramLog>(
            [this](const std::string& topic, const std::string& text) { say_once_per_run(topic, text); })),
        model_(load_stage(groups)),
        precision_(precision::choose_precision(config_.precision, config_.keep_batch_norm, device_)),
        dtypes_(precision_, names_of(model_->tensors.buffers())) {
    prepare_model();
    set_up_torch();
    switch_on_recomputation();
    open_data();
    build_engine();
    files_.finish();
    ended("checksums of the model");
    resume();
    open_log();
    log_->report_start(description());
    report_schedule();
    report_data_schedule();
    ended("resuming");
  }

  TrainOutcome run() {
    if (config_.dump_state && groups_.world.rank() == 0) log::info("{}", resolved_config_);
    if (request_.eval_only) return evaluate() ? TrainOutcome::kStopped : TrainOutcome::kFinished;
    resume_decisions();
    if (engine_->steps_done() >= total_steps_) return run_missing_at_end();
    if (stops_early_) return TrainOutcome::kFinished;
    try_metrics();
    batches_.emplace(BatchLoader(data_.train, data_.train_arrays, config_.data, data_.loader, loader_start()), device_,
                     engine_->steps_done() + 1);
    begin_verification();
    bool stopped = run_missing_midway();
    while (engine_->steps_done() < total_steps_ && !stopped && !stops_early_) stopped = train_one_step();
    if (auto last = engine_->finish()) stopped |= take(*last);
    end_verification();
    save_at_end(stopped);  // before the evaluation, so that the evaluation cannot prevent the save
    if (!stopped && evaluation_->is_due_at_end()) stopped = evaluate();
    save_at_end(stopped);
    checkpoints_->finish();
    report_saved();
    ended("checkpoints");
    auto lines = monitors_.finish();
    log_->finish({engine_->steps_done(), stopped, checkpoints_->last_saved(), best_checkpoint(), describe_input(),
                  std::move(lines)});
    return stopped ? TrainOutcome::kStopped : TrainOutcome::kFinished;
  }

 private:
  // By the first rank that has it to say.
  void say_once_per_run(const std::string& topic, const std::string& text) const {
    bool is_first = true;
    try {
      is_first = store_.add("said/" + topic, 1, Deadline::after(std::chrono::seconds(10))) == 1;
    } catch (const Error&) {
      // Better twice than not at all.
    }
    if (is_first) log::warning("{}", text);
  }

  // What is wrong with the model or its cut is wrong on all ranks, but some may still be in the exchange before it.
  std::unique_ptr<model::Model> load_stage(const comm::Groups& groups) {
    try {
      return setup::load_part(request_.model_path, config_, *request_.device, groups, programs_);
    } catch (const UserError&) {
      files_.finish();  // what a damaged file breaks first is rarely the best explanation
      if (groups.pipe != nullptr || groups.tensor != nullptr) {
        store_barrier_before_end(store_, groups.world.size(), "a refused model", std::chrono::seconds(2));
      }
      throw;
    }
  }

  void tell_placements() const {
    const auto& placements = model_->facts.placements;
    if (!placements || groups_.world.rank() != 0) return;
    log::info("{}", placements->summary());
    for (const auto& line : placements->whole_lines()) log::debug("{}", line);
    if (config_.tensor_parallel.probe != config::TensorProbe::kOff) log::debug("{}", placements->probe->summary());
  }

  void tell_fp8() const {
    if (groups_.world.rank() == 0 && !model_->facts.fp8.empty()) log::info("{}", model_->facts.fp8);
  }

  void prepare_model() {
    if (!request_.eval_only) setup::require_trainable(model_->facts, request_.model_path);
    if (request_.verify > 0) verify::require_same_draws(model_->facts);
    ended("reading the model");
    tell_fp8();
    tell_placements();
    monitors_.watch_model(model_->facts);
    log::debug("model read: {} parameters in {} units", model_->facts.table.num_elements(),
               model_->facts.table.units.size());
  }

  void set_up_torch() {
    device::seed_random_state(config_.train.seed, groups_.own.pipe * groups_.mesh.data + groups_.own.data, device_);
    at::globalContext().setDeterministicAlgorithms(config_.deterministic, /*warn_only=*/false);
    precision::set_tf32(config_.tf32, device_);
    if (config_.fp8) device::require_fp8(device_);
  }

  void open_data() {
    data_ =
        setup::open_training_data(model_->facts, config_, groups_.mesh, groups_.world.rank(), precision_.compute_dtype,
                                  /*pin=*/!device_.is_cpu());
    setup::require_same_data(data_, groups_.world, device_);
    if (request_.eval_only) setup::require_evaluation_data(data_, config_.data);
    total_steps_ = setup::count_steps(data_, config_);
    resolved_config_ = with_solved_settings(request_.resolved_config, solved_settings());
    ended("opening the data");
    log::debug("data open");
  }

  void build_engine() {
    require_memory();
    engine_ = std::make_unique<step::Engine>(*model_, config_, engine_options(), groups_,
                                             setup::initial_values(*model_, config_.init, request_.model_path));
    ended("setting up parameters and optimizer");
    if (const auto seconds = warm_up_.wait(); seconds && request_.timings) {
      ended("waiting for cuBLAS");
      request_.timings->add_beside("cuBLAS's set-up and first product", *seconds);
    }
    if (groups_.world.rank() == 0) {
      for (const auto& note : model_->facts.notes) log::warning("model: {}", note);
      if (model_->facts.stage) {
        for (const auto& line : model::describe_stages(model_->facts.stage->plan)) log::info("{}", line);
        if (model_->facts.stage->plan.is_measured) {
          log::info("the cut is measured and may be another one in another run; to repeat it: --set {}",
                    describe_cut());
        }
      }
      if (const auto note = setup::note_on_init(*model_, config_.init, request_.model_path); !note.empty()) {
        log::warning("{}", note);
      }
    }
    if (kept_positions_) engine_->observe(*kept_positions_);
    starts_.emplace(diagnosis::FailedRun{*model_, *engine_, data_, config_, groups_, device_}, position_);
    log::debug("engine ready");
  }

  // A run that cannot fit ends here, not in its first step.
  void require_memory() const {
    const plan::PlannedRank rank{.device = device_,
                                 .rank = groups_.own.data,
                                 .num_data_ranks = groups_.mesh.data,
                                 .for_evaluation = request_.eval_only};
    const int64_t activations =
        plan::estimate_activations(model_->facts.table, config_,
                                   plan::count_positions(data_, config_.batch.micro_batch), precision_.compute_dtype);
    // Stages differ: a host is asked only for what this rank needs.
    const int num_alike = model_->facts.stage ? 1 : ranks_of_host();
    const auto warning = plan::require_memory(plan::planned_model(*model_), config_, rank,
                                              plan::read_capacity(device_, num_alike), activations);
    if (!warning.empty() && groups_.world.rank() == 0) log::warning("{}", warning);
  }

  // As a setting that repeats it.
  std::string describe_cut() const {
    const auto cut = values_of(resolved_config_, {"pipeline.partition"});
    return cut.empty() ? "" : fmt::format("{}={}", cut.front().first, cut.front().second);
  }

  int ranks_of_host() const {
    return (request_.placement.world_size + request_.placement.num_nodes - 1) / request_.placement.num_nodes;
  }

  void resume() {
    const CheckpointingOptions options{.run_dir = request_.run_dir,
                                       .checkpoint = config_.checkpoint,
                                       .init = config_.init,
                                       .model_path = request_.model_path,
                                       .resolved_config = resolved_config_,
                                       .placement = request_.placement,
                                       .saves = !request_.eval_only,
                                       .full_weights = config_.zero.gather_16bit_weights_on_save,
                                       .float_dtype = float_dtype(),
                                       .dtypes = dtypes_,
                                       .job = request_.job,
                                       .watchdog = request_.watchdog,
                                       .hang_limit = request_.hang_limit,
                                       .whole_model = whole_model()};
    checkpoints_ = std::make_unique<Checkpointing>(options, *model_, *engine_, groups_, store_, device_);
    position_ = checkpoints_->resume(request_.resume, request_.begin_from);
    require_checkpoint_to_evaluate();
  }

  void open_log() {
    const RunLogOptions options{.run_dir = request_.run_dir,
                                .resolved_config = resolved_config_,
                                .job = request_.job,
                                .host = request_.placement.host,
                                .rank = groups_.world.rank(),
                                .data_ranks = groups_.mesh.data,
                                .quiet = request_.quiet,
                                .live = request_.live,
                                .steps_per_epoch = steps_per_epoch(),
                                .total_steps = total_steps_,
                                .evaluates_at_end = data_.eval != nullptr,
                                .eval_only = request_.eval_only,
                                .resumed_step = engine_->steps_done(),
                                .schedule = data_.schedule};
    log_ = std::make_unique<RunLog>(options, config_, device_);
    const bool tells = groups_.contributes_loss() && groups_.own.data == 0;
    evaluation_.emplace(data_, config_.data, *engine_, step::Metrics(config_, model_->facts.labels, device_, tells),
                        make_samples(), *log_, groups_.world, device_, request_.stop_requested);
    decisions_.emplace(config_, groups_.world, device_);
  }

  std::unique_ptr<RunSamples> make_samples() {
    if (!config_.train.samples) return nullptr;
    return std::make_unique<RunSamples>(
        config_.train, config_.checkpoint,
        SampledModel{*model_, *engine_, request_.model_path, device_, precision_.compute_dtype, dtypes_}, groups_.world,
        request_.stop_requested);
  }

  // A schedule that does not end with the run.
  void report_schedule() const {
    if (groups_.world.rank() != 0 || request_.eval_only || engine_->steps_done() >= total_steps_) return;
    const auto group = static_cast<size_t>(optim::default_group_of(config_.optimizer));
    const auto end = optim::describe_schedule_end(config_.scheduler, config_.optimizer.lr, total_steps_, group);
    if (!end) return;
    end->rises ? log::warning("{}", end->text) : log::info("{}", end->text);
  }

  void report_data_schedule() const {
    if (groups_.world.rank() != 0 || request_.eval_only) return;
    for (const auto& line : data_.schedule.describe(total_steps_)) log::info("{}", line);
  }

  std::vector<SavedTensor> whole_model() const {
    if (!model_->facts.stage) return {};
    return setup::saved_tensors_of(*setup::load_model(request_.model_path, config_, *request_.device));
  }

  comm::Communicator* observed(comm::Communicator* group, const char* name) {
    return group == nullptr ? nullptr : &monitors_.observe(*group, name);
  }

  void tell_batch(int64_t step) const {
    const auto& dynamic = config_.data_efficiency.dynamic_batching;
    if (dynamic && dynamic->verbose && groups_.world.rank() == 0) {
      log::info("{}", data_.schedule.batches->describe(step));
    }
  }

  // True when all ranks agreed to stop after this step.
  bool train_one_step() {
    const int64_t step = engine_->steps_done() + 1;
    tell_batch(step);
    const auto next_batch = [&] {
      is_at("the data of step {}", step);
      auto batch = batches_->next();
      is_at("step {}", step);
      return batch;
    };
    auto result = engine_->train_step(next_batch, request_.stop_requested());
    position_ = batches_->position();
    log::debug("step {} issued", engine_->steps_done());
    if (verification_ && !result) result = engine_->finish();
    bool stop = result && take(*result);
    if (verification_) verify(*result);
    ended(std::exchange(is_first_step_, false) ? "the first step" : "steps");
    if (stop) return true;
    if (is_due(config_.train.eval_interval)) {
      if (auto waiting = engine_->finish()) stop = take(*waiting);
      stop |= !stop && evaluate();
      engine_->restart_clock();
    }
    if (is_due(config_.checkpoint.interval) && engine_->steps_done() < total_steps_) {
      if (auto waiting = engine_->finish()) stop = take(*waiting);
      save(/*wait=*/!config_.checkpoint.async);
      ended("checkpoints");
      engine_->restart_clock();
    }
    return stop;
  }

  // Logs a step; ends the run when its loss is not finite and no loss scale handles that as an overflow. All ranks
  // reach the same verdict.
  bool take(const step::StepResult& result) {
    if (request_.watchdog) {
      request_.watchdog->add_step(std::chrono::milliseconds(std::llround(result.step_ms)));
    }
    StepReport report = monitors_.take_step(result.step);
    report.input_ms = batches_->waited_ms(result.step);
    if (std::exchange(has_taken_step_, true)) input_.add(result.step_ms, report.input_ms);
    show_status(result, report);
    log_->report_step(result, report);
    if (groups_.world.rank() == 0 && config_.recomputation.profile && result.step % config_.steps_per_print == 0) {
      log::info("{}", model_->runnable->take_recomputation_profile());
    }
    if (result.diagnosis) {
      // On rank 0 the step's row has to be written.
      store_barrier_before_end(store_, groups_.world.size(), fmt::format("the end at step {}", result.step),
                               std::chrono::seconds(10));
      throw UserError(ExitCode::kCannotContinue, *result.diagnosis);
    }
    if (result.overflow) return result.stop_requested;
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) starts_->explain(result);
    return result.stop_requested;
  }

  // To those who look at this rank from outside.
  void show_status(const step::StepResult& result, const StepReport& report) const {
    if (request_.status == nullptr) return;
    StepStatus status{.step = result.step, .total_steps = total_steps_, .step_ms = result.step_ms};
    if (report.times) status.busy_ms = report.times->step.forward + report.times->step.backward_inner;
    if (!device_.is_cpu()) {
      status.device_bytes = std::max(read_device_memory(device_).peak_allocated, report.peak_device_bytes);
    }
    request_.status->set_step(status);
  }

  // Saves each step only once, however often it is called.
  void save_at_end(bool stopped) {
    if (stopped ? !config_.checkpoint.on_interrupt : !config_.checkpoint.at_end) return;
    log_->write_last_step();
    save(/*wait=*/false);
  }

  // `best`: the state is among the best (Checkpointing::save_as_best); empty: not known to be.
  void save(bool wait, const std::string& best = "") {
    is_at("the checkpoint after step {}", engine_->steps_done());
    const bool is_another = engine_->steps_done() != std::exchange(last_save_, engine_->steps_done());
    if (is_another) saves_.emplace_back(engine_->steps_done(), seconds_since_1970());
    best.empty() ? checkpoints_->save(position_, wait) : checkpoints_->save_as_best(position_, wait, best);
    report_saved();
  }

  // Those that have been completed since.
  void report_saved() {
    std::erase_if(saves_, [&](const auto& each) {
      const auto [step, began] = each;
      const bool is_done = step <= checkpoints_->last_saved_step();
      if (is_done) log_->report_checkpoint(step, began);
      return is_done;
    });
  }

  // All steps are done; an earlier start may have ended during the evaluation after them.
  TrainOutcome run_missing_at_end() {
    const bool is_missing = evaluation_->is_missing_at_end();
    log::info("{}: the run has done {}", is_missing ? "only the evaluation is left" : "nothing to do",
              format_steps_done(engine_->steps_done(), total_steps_));
    return is_missing && evaluate() ? TrainOutcome::kStopped : TrainOutcome::kFinished;
  }

  // An earlier start may have been stopped during the evaluation after the step from which this start resumes. Returns
  // true when a rank requested a stop.
  bool run_missing_midway() {
    if (!is_due(config_.train.eval_interval) || !evaluation_->is_missing_midway()) return false;
    const bool stopped = evaluate();
    engine_->restart_clock();
    return stopped;
  }

  // Returns true when a rank requested a stop.
  bool evaluate() {
    is_at("the evaluation after step {}", engine_->steps_done());
    const auto result = evaluation_->run();
    ended("evaluation");
    if (result && !request_.eval_only) decide(*result);
    return !result;
  }

  // Before the first step, so that a metric that does not suit the model ends the run now and not in its first
  // evaluation.
  void try_metrics() {
    is_at("the first batch of the evaluation data and the first tokens of samples");
    evaluation_->try_metrics();
    engine_->restart_clock();
    ended("trying the metrics");
  }

  void decide(const step::EvaluationResult& result) {
    const auto decision = decisions_->decide(engine_->steps_done(), result);
    if (decision.is_best) {
      save(/*wait=*/!config_.checkpoint.async, decision.best);
      ended("checkpoints");
    }
    stops_early_ = !decision.why_stop.empty() && engine_->steps_done() < total_steps_;
    if (stops_early_ && groups_.world.rank() == 0) log::info("early stopping: {}", decision.why_stop);
  }

  // As an earlier start has left them.
  void resume_decisions() {
    const auto decision = decisions_->resume(request_.run_dir, engine_->steps_done(),
                                             [this](int64_t step) { return checkpoints_->has_checkpoint(step); });
    checkpoints_->restore_best(decision.best);
    stops_early_ = !decision.why_stop.empty() && engine_->steps_done() < total_steps_;
    if (stops_early_ && groups_.world.rank() == 0) {
      log::info(
          "nothing to do: the run has ended early: {}; to train on, set train.early_stopping to null or raise its "
          "patience",
          decision.why_stop);
    }
  }

  // For the last lines; empty: there is none.
  std::string best_checkpoint() const {
    const auto best = decisions_->best();
    if (!best) return {};
    return fmt::format("{} {} after step {}: {}", config_.checkpoint.keep_best->metric, format_loss(best->value),
                       best->step, checkpoints_->path_of(best->step));
  }

  // For the last lines: of the rank that waited most, since the others wait for it; empty: input does not limit the
  // run. Collective.
  std::string describe_input() const {
    const auto of_ranks = gather_values(groups_.world, device_, input_);
    const auto most = std::max_element(of_ranks.begin(), of_ranks.end(),
                                       [](const InputWait& a, const InputWait& b) { return a.share() < b.share(); });
    if (!most->is_limit()) return {};
    const std::string rank = of_ranks.size() > 1 ? fmt::format(" (rank {})", most - of_ranks.begin()) : "";
    return fmt::format("{}{}: {}", most->text(), rank, input_advice(config_.data.num_workers));
  }

  void begin_verification() {
    if (request_.verify == 0) return;
    const bool is_resumed = engine_->steps_done() > 0;
    const verify::ReplicatedRun replicated{.model = *model_,
                                           .device = *request_.device,
                                           .model_path = request_.model_path,
                                           .config = config_,
                                           .engine = engine_options(),
                                           .data = data_,
                                           .start = loader_start(),
                                           .num_data_ranks = groups_.mesh.data,
                                           .random_states = {}};  // Verification gathers them
    verification_ = std::make_unique<verify::Verification>(*engine_, replicated, groups_, store_, is_resumed);
    engine_->restart_clock();
  }

  void verify(const step::StepResult& result) {
    is_at("the comparison of step {}", result.step);
    verification_->compare(result);
    if (verification_->steps_compared() == request_.verify) end_verification();
    ended("verification");
    engine_->restart_clock();
  }

  void end_verification() {
    if (verification_ && groups_.world.rank() == 0) log::info("{}", verification_->report());
    verification_.reset();
  }

  // Reports this rank's activity to the ranks that wait for it.
  template <class... Args>
  void is_at(fmt::format_string<Args...> activity, Args&&... args) const {
    if (request_.watchdog) request_.watchdog->set_activity(fmt::format(activity, std::forward<Args>(args)...));
  }

  // For --timings: attributes the time since the last call to `what`.
  void ended(const char* what) const {
    if (request_.timings) request_.timings->end(what);
  }

  bool is_due(int64_t interval) const { return interval > 0 && engine_->steps_done() % interval == 0; }

  void require_checkpoint_to_evaluate() const {
    if (!request_.eval_only || request_.resume != "auto" || engine_->steps_done() > 0) return;
    throw UserError(ExitCode::kNoInput,
                    fmt::format("--eval_only --resume auto: there is no complete checkpoint in '{}'; without --resume, "
                                "the weights of the model file are evaluated",
                                request_.run_dir));
  }

  void switch_on_recomputation() {
    if (config_.recomputation.selective && device_.is_cpu() && groups_.world.rank() == 0) {
      log::info("'activation_checkpointing.selective' has no effect on CPU ranks: it is for generated kernels");
    }
    switch_on_token_dropping();
    if (!config_.recomputation.enabled) return;
    const auto summary = model_->runnable->set_recomputation(setup::recomputation_options(config_, device_));
    if (groups_.world.rank() == 0) log::info("{}", summary);
  }

  void switch_on_token_dropping() {
    const auto& ltd = config_.data_efficiency.random_ltd;
    if (!ltd) return;
    if (request_.verify > 0) {
      throw UserError(ExitCode::kBadInput,
                      "--verify does not work with random_ltd: each data rank draws the positions of its own samples");
    }
    const auto summary = model_->runnable->set_token_dropping(
        {.layers = ltd->layers,
         .num_layers = ltd->num_layers,
         .batch_first = ltd->batch_first,
         .is_decoder = ltd->is_decoder,
         .mask_name = ltd->mask_name,
         .seed = mix64(config_.data_efficiency.seed) ^ static_cast<uint64_t>(groups_.own.data)});
    if (groups_.world.rank() == 0) log::info("{}", summary);
    kept_positions_.emplace(*model_->runnable, ltd->kept);
  }

  // 0: endless, or no training data.
  int64_t steps_per_epoch() const {
    const bool has_epochs = data_.train && data_.train->num_samples() != SampleSource::kEndless;
    return has_epochs ? setup::steps_in_epochs(data_, config_, 1) : 0;
  }

  RunDescription description() const {
    RunDescription out;
    const ParameterTable& parameters = model_->facts.whole_table();
    out.model = request_.model_path;
    out.num_parameters = parameters.num_elements();
    out.num_trainable = parameters.num_trainable();
    out.compute_dtype = precision_.compute_dtype == at::kBFloat16 ? "bf16"
                        : precision_.compute_dtype == at::kHalf   ? "fp16"
                                                                  : "fp32";
    out.device = device_.is_cpu() ? "cpu" : "cuda";
    out.data_ranks = groups_.mesh.data;
    out.stages = groups_.mesh.pipe;
    out.tensor_ranks = groups_.mesh.tensor;
    out.num_hosts = request_.placement.num_nodes;
    if (data_.train && data_.train->num_samples() != SampleSource::kEndless) {
      out.num_samples = data_.train->num_samples();
      out.steps_per_epoch = steps_per_epoch();
    }
    out.first_step = engine_->steps_done() + 1;
    out.total_steps = total_steps_;
    out.autos = values_of(resolved_config_, request_.auto_keys);
    out.run_dir = request_.run_dir;
    out.checkpoint_dir = checkpoints_->directory();
    return out;
  }

  SolvedSettings solved_settings() const {
    SolvedSettings out{precision_.compute_dtype, config_.zero, total_steps_};
    step::solve_auto_sizes(model_->facts.table, out.zero);
    if (const auto& stage = model_->facts.stage) {
      for (size_t i = 1; i < stage->plan.stages.size(); ++i) {
        out.first_layers.push_back(stage->plan.stages[i].first_layer);
      }
    }
    return out;
  }

  LoaderStart loader_start() const { return {position_, engine_->steps_done(), data_.schedule}; }

  // The dtype to which floating-point tensors of the model are converted; empty: they keep their own.
  std::optional<at::ScalarType> float_dtype() const {
    return precision_.keep_model_dtypes ? std::nullopt : std::optional(precision_.compute_dtype);
  }
  step::EngineOptions engine_options() {
    step::EngineOptions out{.device = device_, .dtypes = dtypes_, .total_steps = total_steps_};
    out.for_evaluation = request_.eval_only;
    out.batch_shapes_vary = data_.schedule.shapes_vary();
    if (const auto& batches = data_.schedule.batches) {
      out.rate_scale = [batches](int64_t step) { return batches->rate_scale(step); };
      out.labels_of_micro_batch =
          batches->max_positions({config_.batch.micro_batch, config_.batch.accumulation, groups_.mesh.data});
    }
    out.ranks_of_host = ranks_of_host();
    out.gather_group = gather_group_;
    out.secondary_group = secondary_group_;
    out.phases = monitors_.phases();
    out.pipeline_clock = monitors_.pipeline_clock();
    if (groups_.pipe != nullptr) {
      out.activity = [this](const std::string& part) {
        is_at("{} on {} in step {}", part, comm::describe_place(groups_.mesh, groups_.world.rank()),
              engine_->steps_done() + 1);
      };
    }
    out.barrier = [this](const std::string& event) {
      store_barrier(store_, groups_.world.size(), engine_->steps_done() + 1, event, request_.hang_limit,
                    request_.watchdog);
    };
    return out;
  }

  const TrainRequest& request_;
  config::JobConfig config_;
  rendezvous::Store& store_;
  at::Device device_;
  setup::FileVerification files_;
  setup::DeviceWarmUp warm_up_;
  StepMonitors monitors_;
  const comm::Groups groups_;                            // wrapped by the monitors
  comm::Communicator *gather_group_, *secondary_group_;  // likewise; may be null
  const setup::ProgramLogPtr programs_;
  std::unique_ptr<model::Model> model_;
  precision::PrecisionChoice precision_;
  precision::ModelDtypes dtypes_;
  setup::TrainingData data_;
  int64_t total_steps_ = 0;
  std::string resolved_config_;
  bool is_first_step_ = true;  // of this process
  bool has_taken_step_ = false;
  InputWait input_;  // of this rank, without that step
  std::unique_ptr<step::Engine> engine_;
  std::unique_ptr<Checkpointing> checkpoints_;
  DataPosition position_;
  std::optional<setup::DeviceBatches> batches_;
  std::vector<std::pair<int64_t, double>> saves_;  // not known to be complete: step, and when the save began
  int64_t last_save_ = -1;                         // the step of the last one
  std::unique_ptr<RunLog> log_;
  std::optional<RunEvaluation> evaluation_;
  std::optional<EvaluationDecisions> decisions_;
  bool stops_early_ = false;                            // after the last evaluation
  std::unique_ptr<verify::Verification> verification_;  // until it has ended
  std::optional<diagnosis::StepSnapshots> starts_;
  std::optional<KeptPositions> kept_positions_;  // empty: units get all positions
};

}  // namespace

TrainOutcome train(const TrainRequest& request, const comm::Groups& groups, rendezvous::Store& store) {
  return Training(request, groups, store).run();
}

}  // namespace dslaunch::runtime::engine::run
