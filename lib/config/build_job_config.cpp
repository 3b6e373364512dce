// Builds the typed sections from the checked table.
#include "config/job_config.hpp"
#include "config/parameter_groups.hpp"
#include "config/rules.hpp"
#include "config/synthetic.hpp"

namespace dslaunch::config {
namespace {

std::optional<int64_t> integer_if_any(const Settings& settings, const std::string& path) {
  const Value& value = settings.at(path).value;
  return value.is_int() ? std::optional(value.integer) : std::nullopt;
}

OptimizerType optimizer_type(const std::string& name) {
  if (name == "Adam") return OptimizerType::kAdam;
  if (name == "SGD") return OptimizerType::kSgd;
  if (name == "Lion") return OptimizerType::kLion;
  if (name == "Adagrad") return OptimizerType::kAdagrad;
  if (name == "Lamb") return OptimizerType::kLamb;
  if (name == "Muon") return OptimizerType::kMuon;
  return OptimizerType::kAdamW;
}

Optimizer build_optimizer(const Settings& settings) {
  Optimizer out;
  out.type = optimizer_type(settings.text("optimizer.type"));
  const bool muon = out.type == OptimizerType::kMuon;
  out.lr = settings.number(muon ? "optimizer.params.adam_lr" : "optimizer.params.lr");
  if (muon) out.muon_lr = settings.number("optimizer.params.muon_lr");
  const auto& betas = settings.at("optimizer.params.betas").value.items;
  out.beta1 = betas.at(0).number;
  out.beta2 = betas.at(1).number;
  out.eps = settings.number("optimizer.params.eps");
  out.weight_decay = settings.number("optimizer.params.weight_decay");
  out.bias_correction = settings.boolean("optimizer.params.bias_correction");
  out.decoupled_weight_decay = out.type != OptimizerType::kAdam || settings.boolean("optimizer.params.adam_w_mode");
  out.momentum = settings.number("optimizer.params.momentum");
  out.dampening = settings.number("optimizer.params.dampening");
  out.nesterov = settings.boolean("optimizer.params.nesterov");
  out.amsgrad = settings.boolean("optimizer.params.amsgrad");
  out.maximize = settings.boolean("optimizer.params.maximize");
  out.lr_decay = settings.number("optimizer.params.lr_decay");
  out.initial_accumulator_value = settings.number("optimizer.params.initial_accumulator_value");
  out.eps_inside_sqrt = settings.boolean("optimizer.params.eps_inside_sqrt");
  out.min_coeff = settings.number("optimizer.params.min_coeff");
  out.max_coeff = settings.number("optimizer.params.max_coeff");
  out.groups = parameter_groups(settings);
  out.no_decay = settings.texts("optimizer.no_decay");
  return out;
}

SchedulerType scheduler_type(const std::string& name) {
  if (name == "WarmupLR") return SchedulerType::kWarmupLR;
  if (name == "WarmupDecayLR") return SchedulerType::kWarmupDecayLR;
  if (name == "WarmupCosineLR") return SchedulerType::kWarmupCosineLR;
  if (name == "LRRangeTest") return SchedulerType::kLRRangeTest;
  if (name == "OneCycle") return SchedulerType::kOneCycle;
  return SchedulerType::kNone;
}

PerGroup per_group(const Settings& settings, const std::string& path) {
  const Value& value = settings.at(path).value;
  if (!value.is_array()) return value.number;
  std::vector<double> each;
  for (const auto& item : value.items) each.push_back(item.number);
  return PerGroup(std::move(each));
}

Scheduler build_scheduler(const Settings& settings) {
  Scheduler out;
  out.type = scheduler_type(settings.text("scheduler.type"));
  out.warmup_min_lr = per_group(settings, "scheduler.params.warmup_min_lr");
  if (!settings.at("scheduler.params.warmup_max_lr").value.is_null()) {
    out.warmup_max_lr = per_group(settings, "scheduler.params.warmup_max_lr");
  }
  out.warmup_num_steps = settings.integer("scheduler.params.warmup_num_steps");
  out.warmup_type = settings.text("scheduler.params.warmup_type") == "linear" ? WarmupType::kLinear : WarmupType::kLog;
  out.total_num_steps = integer_if_any(settings, "scheduler.params.total_num_steps");
  out.warmup_min_ratio = per_group(settings, "scheduler.params.warmup_min_ratio");
  out.cos_min_ratio = per_group(settings, "scheduler.params.cos_min_ratio");
  out.range_min_lr = per_group(settings, "scheduler.params.lr_range_test_min_lr");
  out.range_step_size = settings.integer("scheduler.params.lr_range_test_step_size");
  out.range_step_rate = settings.number("scheduler.params.lr_range_test_step_rate");
  out.range_staircase = settings.boolean("scheduler.params.lr_range_test_staircase");
  out.cycle_min_lr = per_group(settings, "scheduler.params.cycle_min_lr");
  out.cycle_max_lr = per_group(settings, "scheduler.params.cycle_max_lr");
  out.decay_lr_rate = settings.number("scheduler.params.decay_lr_rate");
  out.cycle_first_step_size = settings.integer("scheduler.params.cycle_first_step_size");
  out.cycle_second_step_size = integer_if_any(settings, "scheduler.params.cycle_second_step_size");
  out.decay_step_size = settings.integer("scheduler.params.decay_step_size");
  out.cycle_momentum = settings.boolean("scheduler.params.cycle_momentum");
  out.cycle_min_mom = settings.number("scheduler.params.cycle_min_mom");
  out.cycle_max_mom = settings.number("scheduler.params.cycle_max_mom");
  out.decay_mom_rate = settings.number("scheduler.params.decay_mom_rate");
  return out;
}

Zero build_zero(const Settings& settings) {
  Zero out;
  out.stage = static_cast<int>(settings.integer("zero_optimization.stage"));
  out.reduce_bucket_size = integer_if_any(settings, "zero_optimization.reduce_bucket_size");
  out.allgather_bucket_size = settings.integer("zero_optimization.allgather_bucket_size");
  out.overlap_comm = settings.boolean("zero_optimization.overlap_comm");
  out.reduce_scatter = settings.boolean("zero_optimization.reduce_scatter");
  out.allgather_partitions = settings.boolean("zero_optimization.allgather_partitions");
  out.prefetch_bucket_size = integer_if_any(settings, "zero_optimization.stage3_prefetch_bucket_size");
  out.param_persistence_threshold = integer_if_any(settings, "zero_optimization.stage3_param_persistence_threshold");
  out.model_persistence_threshold = settings.integer("zero_optimization.stage3_model_persistence_threshold");
  out.max_live_parameters = settings.integer("zero_optimization.stage3_max_live_parameters");
  out.hpz_partition_size = std::max<int64_t>(1, settings.integer("zero_optimization.zero_hpz_partition_size"));
  out.quantized_weights = settings.boolean("zero_optimization.zero_quantized_weights");
  out.quantized_frozen = settings.boolean("zero_optimization.zero_quantized_nontrainable_weights");
  out.quantized_gradients = settings.boolean("zero_optimization.zero_quantized_gradients");
  const Value& beta = settings.at("zero_optimization.zeropp_loco_param.err_beta").value;
  const auto reset_interval = integer_if_any(settings, "zero_optimization.zeropp_loco_param.reset_T");
  if (beta.is_float() || reset_interval) {
    out.loco = Zero::Loco{};
    if (beta.is_float()) out.loco->beta = beta.number;
    if (reset_interval) out.loco->reset_interval = *reset_interval;
  }
  out.gather_16bit_weights_on_save = settings.boolean("zero_optimization.stage3_gather_16bit_weights_on_model_save");
  return out;
}

Data build_data(const Settings& settings) {
  Data out;
  out.train = settings.texts("data.train");
  if (out.train.size() == 1 && out.train.front() == "synthetic") {
    out.train.clear();
    out.synthetic_train = true;
  }
  out.eval = settings.texts("data.eval");
  out.format = settings.text("data.format");
  out.inputs = settings.texts("data.inputs");
  out.labels = settings.texts("data.labels");
  out.dtype = settings.text("data.dtype");
  out.seq_len = settings.integer("data.seq_len");
  out.shuffle = settings.boolean("data.shuffle");
  out.seed = static_cast<uint64_t>(settings.integer("data.seed"));
  out.drop_last = settings.boolean("data.drop_last");
  out.num_workers = settings.integer("data.num_workers");
  out.prefetch = settings.integer("data.prefetch");
  out.synthetic = synthetic_arrays(settings);
  return out;
}

Train build_train(const Settings& settings) {
  Train out;
  out.steps = integer_if_any(settings, "train.steps");
  out.epochs = integer_if_any(settings, "train.epochs");
  out.eval_interval = settings.integer("train.eval_interval");
  out.seed = static_cast<uint64_t>(settings.integer("train.seed"));
  return out;
}

Checkpoint build_checkpoint(const Settings& settings) {
  Checkpoint out;
  out.dir = settings.text("checkpoint.dir");
  out.interval = settings.integer("checkpoint.interval");
  out.keep_last = settings.integer("checkpoint.keep_last");
  out.at_end = settings.boolean("checkpoint.at_end");
  out.on_interrupt = settings.boolean("checkpoint.on_interrupt");
  out.async = settings.boolean("checkpoint.async");
  out.use_node_local_storage = settings.boolean("checkpoint.use_node_local_storage");
  out.load.optimizer_states = settings.boolean("checkpoint.load.optimizer_states");
  out.load.weights_only = settings.boolean("checkpoint.load.weights_only");
  out.load.strict = settings.boolean("checkpoint.load.strict");
  return out;
}

MonitorFiles build_monitor_files(const Settings& settings, const std::string& section) {
  return {settings.boolean(section + ".enabled"), settings.text(section + ".output_path"),
          settings.text(section + ".job_name")};
}

FlopsProfiler build_flops_profiler(const Settings& settings) {
  FlopsProfiler out;
  out.enabled = settings.boolean("flops_profiler.enabled");
  out.recompute_fwd_factor = settings.number("flops_profiler.recompute_fwd_factor");
  out.profile_step = settings.integer("flops_profiler.profile_step");
  out.module_depth = settings.integer("flops_profiler.module_depth");
  out.top_modules = settings.integer("flops_profiler.top_modules");
  out.detailed = settings.boolean("flops_profiler.detailed");
  out.output_file = settings.text("flops_profiler.output_file");
  return out;
}

CommsLogger build_comms_logger(const Settings& settings) {
  CommsLogger out;
  out.enabled = settings.boolean("comms_logger.enabled");
  out.prof_all = settings.boolean("comms_logger.prof_all");
  out.prof_ops = settings.texts("comms_logger.prof_ops");
  out.verbose = settings.boolean("comms_logger.verbose");
  out.debug = settings.boolean("comms_logger.debug");
  return out;
}

void build_monitoring(const Settings& settings, JobConfig& out) {
  out.steps_per_print = settings.integer("steps_per_print");
  out.deepspeed_lines = settings.given("steps_per_print");
  out.throughput_timer = settings.boolean("timers.throughput.enabled");
  out.wall_clock_breakdown = settings.boolean("wall_clock_breakdown");
  out.memory_breakdown = settings.boolean("memory_breakdown");
  out.tensorboard = build_monitor_files(settings, "tensorboard");
  out.csv_monitor = build_monitor_files(settings, "csv_monitor");
  out.flops_profiler = build_flops_profiler(settings);
  out.comms_logger = build_comms_logger(settings);
}

Recomputation build_recomputation(const Settings& settings) {
  const std::string section = "activation_checkpointing.";
  Recomputation out;
  out.enabled = settings.boolean(section + "enabled");
  out.number_checkpoints = integer_if_any(settings, section + "number_checkpoints");
  out.cpu_checkpointing = settings.boolean(section + "cpu_checkpointing");
  out.contiguous_memory_optimization = settings.boolean(section + "contiguous_memory_optimization");
  out.synchronize_checkpoint_boundary = settings.boolean(section + "synchronize_checkpoint_boundary");
  out.profile = settings.boolean(section + "profile");
  return out;
}

void build_model_sections(const Settings& settings, JobConfig& out) {
  out.loss = settings.text("loss");
  if (settings.text("loss_average") == "tokens") out.loss_average = LossAverage::kTokens;
  out.units = settings.texts("units");
  if (!settings.at("init").value.is_null()) {
    out.init = Init{static_cast<uint64_t>(settings.integer("init.seed")), settings.number("init.std")};
  }
  out.deterministic = settings.boolean("deterministic");
  out.graph_harvesting = settings.boolean("graph_harvesting");
  out.kernels = {settings.boolean("kernels.cross_entropy"), settings.boolean("kernels.layer_norm"),
                 settings.boolean("kernels.bias_gradient")};
}

}  // namespace

JobConfig build_job_config(const Settings& settings) {
  JobConfig out;
  out.batch = {settings.integer("train_batch_size"), settings.integer("train_micro_batch_size_per_gpu"),
               settings.integer("gradient_accumulation_steps")};
  out.optimizer = build_optimizer(settings);
  out.scheduler = build_scheduler(settings);
  out.zero = build_zero(settings);
  build_precision(settings, out);
  out.communication_data_type = scalar_type_of(settings, "communication_data_type");
  out.grad_accum_dtype = scalar_type_of(settings, "data_types.grad_accum_dtype");
  out.gradient_clipping = settings.number("gradient_clipping");
  out.prescale_gradients = settings.boolean("prescale_gradients");
  out.gradient_predivide_factor = settings.number("gradient_predivide_factor");
  build_monitoring(settings, out);
  out.dump_state = settings.boolean("dump_state");
  out.data = build_data(settings);
  out.train = build_train(settings);
  out.checkpoint = build_checkpoint(settings);
  out.recomputation = build_recomputation(settings);
  build_model_sections(settings, out);
  return out;
}

}  // namespace dslaunch::config
