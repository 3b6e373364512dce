// The typed sections of a job file after all checks: plain data, independent of the readers. Each room uses its own
// section. An empty optional means that the key was not given, or is "auto" and only the worker can resolve it (it
// depends on the model or the device).
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::config {

enum class Precision { kFp32, kBf16, kFp16, kAuto };  // kAuto: bf16 on GPUs that support it, else fp32
enum class ScalarType { kFp32, kBf16, kFp16 };
// How GEMMs in fp8 scale their operands (docs/precision.md), by torchao's names.
enum class Fp8Recipe : uint8_t { kTensorwise, kRowwise, kRowwiseWithGwHp };

enum class LossScaleKind { kNone, kStatic, kDynamic };
// The factor that multiplies the loss before backward, so that small gradients do not underflow in half precision, and
// how it changes after steps whose gradients overflowed (docs/precision.md).
struct LossScale {
  LossScaleKind kind = LossScaleKind::kNone;
  double initial = 1;      // the static scale, or the initial value of a dynamic scale
  int64_t window = 1000;   // clean steps before it doubles
  int64_t hysteresis = 2;  // overflows before it halves
  bool consecutive_hysteresis = false;
  double minimum = 1;
  double maximum = std::numeric_limits<double>::infinity();
  bool late_growth = true;  // DeepSpeed's first doubling needs one clean step more than the window
};

// train_batch = micro_batch * accumulation * data ranks; all three solved.
struct Batch {
  int64_t train_batch = 1;
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
};

enum class OptimizerType {
  kAdamW,
  kAdam,
  kSgd,
  kLion,
  kAdagrad,
  kLamb,
  kMuon,
  kRmsprop,
  kNadam,
  kRadam,
  kAdamax,
  kAdadelta,
  kRprop,
  kAsgd,
  kAdafactor,
  kAdamW8bit,
  kOneBitAdam,
  kOneBitLamb,
  kZeroOneAdam,
};

// Whether some of its steps take gradients that are not averaged, and exchange values of one bit instead.
constexpr bool is_one_bit(OptimizerType type) {
  return type == OptimizerType::kOneBitAdam || type == OptimizerType::kOneBitLamb ||
         type == OptimizerType::kZeroOneAdam;
}

// Parameters with optimizer settings of their own: a parameter belongs to the first group with a matching pattern.
struct ParameterGroup {
  std::string name;
  std::vector<std::string> match;  // shell patterns for names, or conditions such as "ndim<2"; any of them matches
  std::optional<double> lr, beta1, beta2, eps, weight_decay, momentum;  // empty: those of optimizer.params
  std::optional<bool> use_muon;                                         // Muon; empty: by shape and name
};

struct Optimizer {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool bias_correction = true;
  bool decoupled_weight_decay = true;         // AdamW's; Adam unless adam_w_mode is false; NAdam and RAdam if asked for
  double momentum = 0.0, dampening = 0.0;     // SGD; RMSprop the momentum, Muon for its matrices
  bool nesterov = false;                      // SGD
  bool amsgrad = false;                       // Adam, AdamW
  bool maximize = false;                      // gradient ascent: torch.optim's, that is not Lion, Lamb, Muon
  double lr_decay = 0.0;                      // Adagrad
  double initial_accumulator_value = 0.0;     // Adagrad
  bool eps_inside_sqrt = false;               // Lamb
  double min_coeff = 0.01, max_coeff = 10.0;  // Lamb: bounds of the trust ratio
  double alpha = 0.99;                        // RMSprop: decay of the mean square; ASGD: power of the decaying rate
  bool centered = false;                      // RMSprop
  double momentum_decay = 4e-3;               // NAdam
  double rho = 0.9;                           // Adadelta
  double eta_minus = 0.5, eta_plus = 1.2;     // Rprop
  double min_step_size = 1e-6, max_step_size = 50;               // Rprop
  double lambd = 1e-4, t0 = 1e6;                                 // ASGD
  std::optional<double> eps1;                                    // Adafactor: empty: that of fp32
  double eps2 = 1e-3, beta2_decay = -0.8, clip_threshold = 1.0;  // Adafactor
  int64_t min_8bit_size = 4096;                                  // AdamW8bit: smaller parameters keep fp32 moments
  int64_t freeze_step = 100'000;                                 // OneBitAdam, OneBitLamb: steps of the warm-up
  double coeff_beta = 0.9;                                       // OneBitLamb, like the three below
  double factor_min = 0.5, factor_max = 4.0, factor_threshold = 0.1;
  int64_t var_freeze_step = 100'000, var_update_scaler = 16;  // ZeroOneAdam, like the two below
  int64_t local_step_scaler = 32678, local_step_clipper = 16;
  double muon_lr = 0.02;               // Muon: lr of the matrices; `lr` is that of the other parameters
  std::vector<ParameterGroup> groups;  // in the order of the file
  std::vector<std::string> no_decay;   // patterns, or only "auto"; adds a last group without weight decay. Empty: none
};

// One number for all optimizer groups, or one per group.
struct PerGroup {
  std::vector<double> values;
  PerGroup(double all) : values{all} {}  // NOLINT: a single number is one
  explicit PerGroup(std::vector<double> each) : values(std::move(each)) {}
  bool operator==(const PerGroup&) const = default;
  double of(size_t group) const { return values.size() == 1 ? values.front() : values.at(group); }
};

enum class SchedulerType { kNone, kWarmupLR, kWarmupDecayLR, kWarmupCosineLR, kLRRangeTest, kOneCycle };
enum class WarmupType { kLog, kLinear };
// DeepSpeed's formulas (docs/optimizers.md). Rates are absolute except the ratios of WarmupCosineLR.
struct Scheduler {
  SchedulerType type = SchedulerType::kNone;
  PerGroup warmup_min_lr = 0.0;
  std::optional<PerGroup> warmup_max_lr;  // empty: the optimizer's lr
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
  std::optional<int64_t> total_num_steps;                 // empty ("auto"): the steps of the run
  PerGroup warmup_min_ratio = 0.0, cos_min_ratio = 1e-4;  // WarmupCosineLR
  PerGroup range_min_lr = 1e-3;                           // LRRangeTest
  int64_t range_step_size = 2000;
  double range_step_rate = 1.0;
  bool range_staircase = false;
  PerGroup cycle_min_lr = 0.0, cycle_max_lr = 0.0;  // OneCycle
  double decay_lr_rate = 0.0;
  int64_t cycle_first_step_size = 2000;
  std::optional<int64_t> cycle_second_step_size;  // empty: same as the first step size
  int64_t decay_step_size = 0;                    // 0: no decay after the cycle
  bool cycle_momentum = true;                     // only for optimizers with betas
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0.0;

  // Whether the rate decays until total_num_steps, and means nothing after them.
  bool has_end() const { return type == SchedulerType::kWarmupDecayLR || type == SchedulerType::kWarmupCosineLR; }
};

// Where state rests between its uses: on the device, in host memory ("cpu"), or in files ("nvme").
enum class OffloadDevice : uint8_t { kNone, kHost, kFile };

struct OffloadOptimizer {  // masters and moments, and the gradients on their way to them
  OffloadDevice device = OffloadDevice::kNone;
  std::vector<std::string> nvme_path;  // directories as written (node_paths.hpp expands them); for kFile at least one
  int64_t buffer_count = 4;            // kFile: sub-groups in host memory at a time
  bool pin_memory = false;  // page-locks all that the copy engine touches; false: copies go through a small ring
  bool pipeline_read = false, pipeline_write = false;  // kFile: read ahead, write behind
  double ratio = 1.0;        // stage 3: share of the state that is offloaded; the first used units stay on the device
  double cores_share = 1.0;  // of the cores that the rank is bound to: used by updates
  bool delayed_update = false;      // an update takes effect one step later
  int64_t delayed_after_steps = 0;  // delayed_update: the first steps without delay
};

struct OffloadParam {  // stage 3: the parameters in their compute dtype
  OffloadDevice device = OffloadDevice::kNone;
  std::vector<std::string> nvme_path;
  int64_t buffer_count = 5;
  int64_t buffer_size = 100'000'000;   // elements; kFile
  int64_t max_in_cpu = 1'000'000'000;  // elements; kFile: what stays in host memory
  bool pin_memory = false;
};

struct Zero {
  int stage = 0;
  OffloadOptimizer offload_optimizer;
  OffloadParam offload_param;
  int64_t sub_group_size = 1'000'000'000;                   // elements that an offloaded update works on at once
  std::optional<int64_t> reduce_bucket_size = 500'000'000;  // elements; empty: "auto", h*h of the model
  int64_t allgather_bucket_size = 500'000'000;              // elements
  bool overlap_comm = false;
  bool reduce_scatter = true;
  bool allgather_partitions = true;
  // Stage 3, in elements; empty: "auto", derived from the model's width.
  std::optional<int64_t> prefetch_bucket_size = 50'000'000;
  std::optional<int64_t> param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = INT64_MAX;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  // ZeRO++.
  int64_t hpz_partition_size = 1;  // size of the rank group that all-gathers within itself after the first all-gather
                                   // of a step; 1: off
  bool quantized_weights = false, quantized_frozen = false, quantized_gradients = false;
  struct Loco {
    double beta = 0.8;
    int64_t reset_interval = 1024;
  };
  std::optional<Loco> loco;
  bool gather_16bit_weights_on_save = false;  // also saves unsharded weights in the compute type with every checkpoint
};

struct Aio {                     // "aio": reading and writing of what is in files
  int64_t block_size = 1 << 20;  // bytes of one read or write
  int64_t queue_depth = 8;       // requests in flight of one thread
  int64_t num_threads = 1;
};

struct ArraySpec {  // one entry of data.synthetic
  std::string name;
  std::vector<int64_t> shape;  // of one sample
  std::string dtype = "float32";
  double low = 0, high = 1;  // integers: low <= x < high; floats: uniform in [low, high)
  std::string like;          // copy shape, dtype and values of this array
};
// Of pictures, inputs whose samples are [channels, height, width].
struct Normalize {
  std::vector<double> mean, std;  // one for each channel, of pixels from 0 to 1
};
struct RandomCrop {
  std::vector<int64_t> size;  // height and width; empty: as the pictures have them
  int64_t padding = 0;        // on each side
};
struct Data {
  std::vector<std::string> train;  // paths or globs; empty: none given. "synthetic" sets synthetic_train.
  std::vector<std::string> eval;
  bool synthetic_train = false;
  std::string format = "auto";              // auto | safetensors | npy | npz | tokens | megatron
  std::vector<std::string> inputs, labels;  // array names in the order of forward's arguments; empty: contracts'
                                            // default
  std::string dtype = "uint16";             // token streams only
  int64_t seq_len = 0;                      // token streams and Megatron data; 0: not given
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = true;
  int64_t num_workers = 2;
  std::optional<int64_t> prefetch;  // empty: chosen by the size of a step's batches
  std::optional<Normalize> normalize;
  std::optional<RandomCrop> random_crop;
  bool random_flip = false;
  std::vector<ArraySpec> synthetic;
};

// How the loss of a step is averaged: over the means of the micro batches, or over all labels that count.
enum class LossAverage : uint8_t { kMicroBatches, kTokens };

// What an evaluation measures beside the loss: "eval_NAME" of its result.
struct EvaluationMetric {
  std::string name;
  std::string module;  // a TorchScript file; empty: perplexity or accuracy
  bool operator==(const EvaluationMetric&) const = default;
};

enum class MetricMode : uint8_t { kMin, kMax };  // which values of a metric are better

// The metrics of the next two are values of an evaluation, "eval_NAME"; their mode is set once the rules were applied.
struct EarlyStopping {
  std::string metric = "eval_loss";
  int64_t max_without_better = 3;  // evaluations in a row that end the run; the key is "patience"
  double min_delta = 0;            // a value is better by more than this
  std::optional<MetricMode> mode;
};

struct KeepBest {
  std::string metric = "eval_loss";
  std::optional<MetricMode> mode;
  int64_t count = 1;  // checkpoints
};

// The value of samples with references: the share of texts that are their reference.
inline constexpr char kExactMatch[] = "exact_match";

// A text that a run continues at its evaluations.
struct SamplePrompt {
  std::string text;
  std::vector<int64_t> ids;              // instead of the text
  std::optional<std::string> reference;  // what it should continue with
  bool operator==(const SamplePrompt&) const = default;
};

// Texts that a run writes at its evaluations, and what measures them.
struct Samples {
  std::vector<SamplePrompt> prompts;
  std::string prompts_file;  // in place of prompts; a line is one
  int64_t num_tokens = 64;   // the most that are added to a prompt
  double temperature = 0;    // 0: always the likeliest token
  int64_t top_k = 0;         // 0: all tokens may be drawn
  double top_p = 1;
  uint64_t seed = 0;
  std::vector<std::string> stop;  // texts that end a text in front of them
  std::string tokenizer;          // file or directory; empty: the model's own
  std::string metric_command;     // for a shell; empty: none
};

struct Train {
  std::optional<int64_t> steps;
  std::optional<int64_t> epochs;  // both empty: one epoch
  int64_t eval_interval = 0;      // steps; 0: never
  uint64_t seed = 42;
  std::vector<EvaluationMetric> metrics;
  std::optional<EarlyStopping> early_stopping;
  std::optional<Samples> samples;
};

// The parts of a checkpoint that `--resume PATH` loads; `--resume auto` always loads all of it.
struct CheckpointLoad {
  bool optimizer_states = true;  // false: new optimizer moments, all other state resumes
  bool weights_only = false;     // true: weights and buffers only, from step 1 and the start of the data
  bool strict = true;            // false: load what model and checkpoint have in common
};

struct Checkpoint {
  std::string dir;       // empty: RUN_DIR/checkpoints
  int64_t interval = 0;  // steps; 0: only at the end
  int64_t keep_last = 2;
  std::optional<KeepBest> keep_best;  // besides the last ones
  bool at_end = true, on_interrupt = true, async = true;
  bool use_node_local_storage = false;  // the directory of this name may be local to each node
  CheckpointLoad load;
};

struct Recomputation {  // "activation_checkpointing"
  bool enabled = false;
  bool selective = false;                     // outputs of fused regions, independent of the others
  std::optional<int64_t> number_checkpoints;  // groups of blocks; empty: every block by itself
  bool cpu_checkpointing = false, contiguous_memory_optimization = false;
  bool partition_activations = false;  // each tensor rank keeps its part of the saved inputs of blocks
  bool synchronize_checkpoint_boundary = false, profile = false;
};

enum class PipelineSchedule : uint8_t { k1F1B, kGPipe, kZbH1 };  // runtime/pipeline/schedule.hpp
// What is balanced among pipeline stages: measured time, the number of layers, of trainable parameters, or of layers
// whose class has a certain name; or where the cuts are.
enum class PipelinePartition : uint8_t { kTime, kUniform, kParameters, kType, kLayers };

struct Pipeline {      // "pipeline"
  int64_t stages = 1;  // ranks that hold one model together, each a part of its layers
  PipelinePartition partition = PipelinePartition::kTime;
  std::vector<int64_t> first_layers;  // kLayers: of every stage after the first, counted from 0
  std::string layer_type;             // kType: a regular expression (ECMAScript), searched in class names in any case
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  int64_t activation_checkpoint_interval = 0;  // blocks that are recomputed as one group; 0: see Recomputation
};

// What tensor ranks have of the weight of a product: a part of its outputs, a part of its inputs, or all of it.
enum class TensorSplit : uint8_t { kColumn, kRow, kWhole };

// A choice that the config makes instead of the graph. It concerns the products whose parameters all given names match.
struct TensorSplitRule {
  std::string block_class;        // only in blocks of this class; empty: everywhere
  std::string module;             // end of the module's name, at a dot; empty: all
  std::string parameter_pattern;  // a regular expression (ECMAScript) for the start of parameters' names; empty: all
  TensorSplit split = TensorSplit::kColumn;
  // Sizes of the parts of a fused weight in the split dim, in proportion to each other: every part is split by itself.
  // Empty: as the graph says.
  std::vector<int64_t> parts;
  std::string key;  // where the config has it, for messages

  bool operator==(const TensorSplitRule&) const = default;
};

// Which units run beside their unsplit replica before the first step: one of each kind, all, or none.
enum class TensorProbe : uint8_t { kDistinct, kAll, kOff };

struct TensorParallel {            // "tensor_parallel"
  int64_t size = 1;                // ranks that hold each layer together
  bool sequence_parallel = false;  // what lies between the products is split along the positions
  std::optional<bool> overlap;     // backward's all-reduce beside the weight's gradient; empty: on GPUs
  TensorProbe probe = TensorProbe::kDistinct;
  std::vector<TensorSplitRule> rules;  // the first that matches a product counts; the graph decides about all others
  bool needs_rules = false;            // a product that no rule matches is an error
};

struct Kernels {  // "kernels": the model's operators that ours replace, and rewrites of its graphs
  bool cross_entropy = true, layer_norm = true, bias_gradient = true, weight_gradient = true, residual_gradient = true;
  bool size_arithmetic = true, constants = true, attention_masks = true, grouped_attention = true;
  bool fused_regions = true, chunked_cross_entropy = false, gemm_autotuning = true;
};

struct Init {  // "init": initializes a model that was exported with --empty
  uint64_t seed = 0;
  double std = 0.02;
  std::string from;  // a directory of Hugging Face's weights; empty: random values
};

struct MonitorFiles {  // "tensorboard", "csv_monitor": files below output_path/job_name
  bool enabled = false;
  std::string output_path, job_name = "DeepSpeedJobName";  // an empty path is the working directory
};

struct Wandb {  // "wandb": Weights & Biases, through the user's Python client
  bool enabled = false;
  std::string project;  // empty: the client's WANDB_PROJECT, else "deepspeed"
  std::string group, team;
};

struct FlopsProfiler {
  bool enabled = false;
  double recompute_fwd_factor = 0.0;  // fraction of a forward that backward recomputes
  int64_t profile_step = 1;           // number of steps done before the profiled one, as DeepSpeed counts
  int64_t module_depth = -1;          // of the table of top modules; -1: down to the innermost modules
  int64_t top_modules = 1;
  bool detailed = true;
  std::string output_file;  // empty: standard output
};

struct CommsLogger {
  bool enabled = false;
  bool prof_all = true;
  std::vector<std::string> prof_ops;  // DeepSpeed's names of collectives; used when prof_all is off
  bool verbose = false, debug = false;
};

// How a difficulty grows with the steps (config/difficulty.hpp).
enum class DifficultySchedule : uint8_t { kFixedLinear, kFixedRoot, kFixedDiscrete };
struct Difficulty {
  DifficultySchedule schedule = DifficultySchedule::kFixedLinear;
  int64_t minimum = 0, maximum = 0;
  int64_t total_steps = 1, granularity = 1, root_degree = 1;  // kFixedLinear, kFixedRoot; the root only kFixedRoot
  std::vector<int64_t> levels, last_steps;                    // kFixedDiscrete: the last level has no last step
  bool operator==(const Difficulty&) const = default;
};

// A property of samples by which a curriculum admits them, harder ones later.
struct CurriculumMetric {
  std::string name;
  Difficulty difficulty;
  bool by_percentile = false;      // difficulties count parts of the sorted samples instead of values
  bool is_single_cluster = false;  // the metric admits all samples at any difficulty
  std::string index_to_sample_path, index_to_metric_path;
};

// How a batch of another size changes the learning rate, and in which order samples are packed into batches.
enum class RateScaling : uint8_t { kLinear, kSqrt, kNone };
enum class PickingOrder : uint8_t { kDataloader, kRandom, kSeqlen };
struct DynamicBatching {
  std::string metrics_path;  // directory with seqlen/seqlen_sample_to_metric
  int64_t max_tokens = 1;
  int64_t min_batch_size = 1;
  std::optional<int64_t> max_batch_size;
  RateScaling lr_scaling_method = RateScaling::kLinear;
  PickingOrder sequence_picking_order = PickingOrder::kDataloader;
  bool verbose = false;
};

// Units that run on a random part of the positions in training.
struct RandomLtd {
  Difficulty kept;              // positions; counted by the steps done before
  std::vector<int64_t> layers;  // of the model's blocks, counted from 0
  int64_t num_layers = 0;       // blocks of the model
  bool batch_first = true;      // hidden states are [samples, positions, features]; false: positions first
  bool is_decoder = true;
  std::string mask_name;  // of the argument that is the mask; empty: it is told by its shape
};

struct DataEfficiency {                       // "curriculum_learning", "data_efficiency"
  std::optional<Difficulty> sequence_length;  // samples are cut to it
  uint64_t seed = 1234;
  std::optional<int64_t> num_epochs;      // of the sampler; empty: train.epochs alone counts
  std::vector<CurriculumMetric> metrics;  // in the order of the file; empty: all samples from the first step on
  std::optional<DynamicBatching> dynamic_batching;
  std::optional<RandomLtd> random_ltd;
};

struct JobConfig {
  Batch batch;
  Optimizer optimizer;
  Scheduler scheduler;
  Zero zero;
  Aio aio;
  Precision precision = Precision::kFp32;
  LossScale loss_scale;                // for fp16, or for autocast to fp16
  std::optional<ScalarType> autocast;  // bf16 or fp16: forward runs under autocast, parameters keep their type
  std::optional<Fp8Recipe> fp8;        // the GEMMs of wide linear layers compute in fp8
  bool keep_batch_norm = true;         // batch norms keep the model's type when the rest is computed in 16 bits
  bool fp32_master = true;             // false: weights exist in 16 bits only; no fp32 copy is kept between steps
  std::optional<bool> tf32;            // empty: PyTorch's default
  std::optional<ScalarType> communication_data_type;  // empty: the compute type
  std::optional<ScalarType> grad_accum_dtype;         // empty: fp32
  double gradient_clipping = 0.0;                     // 0: off
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  int64_t steps_per_print = 10;
  bool deepspeed_lines = false;  // steps_per_print was given: also print DeepSpeed's own progress lines
  bool throughput_timer = true;  // one of DeepSpeed's progress lines
  bool wall_clock_breakdown = false, memory_breakdown = false;
  MonitorFiles tensorboard, csv_monitor;
  Wandb wandb;
  FlopsProfiler flops_profiler;
  CommsLogger comms_logger;
  bool dump_state = false;
  Data data;
  DataEfficiency data_efficiency;
  std::string loss;     // "", "cross_entropy", "mse" or a TorchScript file
  std::string outputs;  // an entry of forward's result: its name, or its index in a tuple; "": chosen by the run
  Train train;
  Checkpoint checkpoint;
  Recomputation recomputation;
  std::vector<std::string> units;  // class names or module paths; empty: "auto"
  std::optional<Init> init;
  bool deterministic = false;
  std::optional<bool> graph_harvesting;  // empty: "auto", as measured
  Pipeline pipeline;
  TensorParallel tensor_parallel;
  Kernels kernels;
  LossAverage loss_average = LossAverage::kMicroBatches;
};

// Whether `loss` names a loss of ours; every other text that is not empty is the path of a TorchScript file.
inline bool is_own_loss(std::string_view loss) {
  return loss == "cross_entropy" || loss == "mse";
}

}  // namespace dslaunch::config
