#include "config/rules.hpp"

#include <algorithm>
#include <string>

#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "config/batch_triple.hpp"
#include "config/synthetic.hpp"

namespace dslaunch::config {
namespace {

bool is_on(const Settings& settings, const std::string& path) {
  const Value& value = settings.at(path).value;
  return value.is_bool() && value.boolean;
}

// A ZeRO++ feature that the stage does not support is a contradiction, not a setting without effect.
void apply_zeropp_rules(Settings& settings) {
  const int64_t stage = settings.integer("zero_optimization.stage");
  auto need = [&](const char* key, bool is_used, int64_t lowest) {
    const std::string path = std::string("zero_optimization.") + key;
    if (!is_used || stage >= lowest) return;
    settings.add_error(Issue::Kind::kConflict, path,
                       fmt::format("'{}' needs ZeRO stage {}, but zero_optimization.stage is {}", path,
                                   lowest == 3 ? "3" : "2 or 3", stage));
  };
  need("zero_hpz_partition_size", settings.integer("zero_optimization.zero_hpz_partition_size") > 1, 3);
  need("zero_quantized_weights", is_on(settings, "zero_optimization.zero_quantized_weights"), 3);
  need("zero_quantized_nontrainable_weights", is_on(settings, "zero_optimization.zero_quantized_nontrainable_weights"),
       3);
  need("zero_quantized_gradients", is_on(settings, "zero_optimization.zero_quantized_gradients"), 2);
  const std::string loco = "zero_optimization.zeropp_loco_param.";
  const bool has_loco =
      !settings.at(loco + "err_beta").value.is_null() || !settings.at(loco + "reset_T").value.is_null();
  if (has_loco && !is_on(settings, "zero_optimization.zero_quantized_gradients")) {
    settings.add_error(
        Issue::Kind::kConflict, "zero_optimization.zeropp_loco_param",
        "'zero_optimization.zeropp_loco_param' needs zero_quantized_gradients, whose quantization error it feeds back");
  }
}

void apply_zero_rules(Settings& settings) {
  if (is_on(settings, "zero_optimization.legacy_stage1")) {
    settings.add_error(Issue::Kind::kConflict, "zero_optimization.legacy_stage1",
                       "'zero_optimization.legacy_stage1' selects an implementation that was removed; leave it out: "
                       "stage 1 has one implementation");
  }
  if (settings.at("zero_optimization.overlap_comm").value.is_null()) {
    bool overlap = settings.integer("zero_optimization.stage") == 3;
    settings.solve("zero_optimization.overlap_comm", Value::of_bool(overlap), "default");
  }
  apply_zeropp_rules(settings);
  if (settings.at("allgather_size").value.is_null()) return;
  bool is_bare_number = settings.written_as("zero_optimization.stage") == "zero_optimization";
  if (is_bare_number && settings.integer("zero_optimization.stage") == 1) {
    settings.solve("zero_optimization.allgather_bucket_size", settings.at("allgather_size").value);
  } else {
    settings.note("allgather_size",
                  "'allgather_size' has an effect only with \"zero_optimization\": true; set "
                  "zero_optimization.allgather_bucket_size");
  }
}

// At stage 3 an untied head has a unit of its own, gathered for its own time; in one operator with the loss it would
// stay gathered with the root. A pipeline's stages balance it as a layer.
void apply_kernel_rules(Settings& settings) {
  const std::string chunks = "kernels.chunked_cross_entropy";
  if (!settings.at(chunks).value.is_null()) return;
  const bool is_on_by_default = settings.integer("zero_optimization.stage") < 3 &&
                                settings.integer("pipeline.stages") == 1 && settings.boolean("kernels.cross_entropy");
  settings.solve(chunks, Value::of_bool(is_on_by_default), "default");
}

// "cross_entropyy" is a typo, "losses/mine.pt" a file.
void check_loss_name(Settings& settings) {
  const Value& loss = settings.at("loss").value;
  if (loss.is_null()) return;
  if (loss.text.empty()) {
    settings.add_error(Issue::Kind::kRange, "loss", "'loss' is empty; write cross_entropy, mse or a TorchScript file");
    return;
  }
  if (is_own_loss(loss.text) || loss.text.find_first_of("./") != loss.text.npos) return;
  settings.add_error(Issue::Kind::kRange, "loss",
                     fmt::format("'loss' must be cross_entropy, mse or a TorchScript file (with a '.' or '/' in its "
                                 "name), not {}{}",
                                 describe(loss), did_you_mean(loss.text, {"cross_entropy", "mse"})));
}

void check_outputs(Settings& settings) {
  const Value& outputs = settings.at("outputs").value;
  if (outputs.is_null()) return;
  if (outputs.text.empty()) {
    settings.add_error(Issue::Kind::kRange, "outputs", "'outputs' is empty; write a name, or an index in a tuple");
  } else if (settings.at("loss").value.is_null() && settings.at("train.metrics").value.items.empty()) {
    settings.note("outputs", "'outputs' has no effect: without 'loss' and 'train.metrics' nothing takes the outputs");
  }
}

bool holds(const std::vector<std::string>& texts, const char* text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// A loss of ours, the counting of labels and the metrics take one array; null leaves the choice to the data.
void check_number_of_labels(Settings& settings) {
  const std::string path = "data.labels";
  const Value& loss = settings.at("loss").value;
  if (settings.at(path).value.is_null() || settings.texts(path).size() == 1 || settings.has_error(path)) return;
  const bool has_metrics = !settings.at("train.metrics").value.items.empty();
  const std::string taker = !loss.is_null()                             ? fmt::format("loss '{}'", loss.text)
                            : settings.text("loss_average") == "tokens" ? "\"loss_average\": \"tokens\""
                            : has_metrics                               ? "'train.metrics'"
                                                                        : "";
  if (taker.empty()) return;
  settings.add_error(Issue::Kind::kConflict, path,
                     fmt::format("'{}' names {} arrays, but {} takes one", path, settings.texts(path).size(), taker));
}

void check_training_data(Settings& settings) {
  auto train = settings.texts("data.train");
  if (!holds(train, "synthetic")) return;
  if (settings.at("train.steps").value.is_null())
    settings.note("data.train",
                  "'data.train' is synthetic and never ends: a run also needs 'train.steps', or --steps N");
  if (train.size() > 1) {
    settings.add_error(Issue::Kind::kConflict, "data.train",
                       "'data.train' mixes \"synthetic\" with files; use one of the two");
  } else if (synthetic_arrays(settings).empty()) {
    settings.add_error(Issue::Kind::kConflict, "data.train",
                       "'data.train' is synthetic, so 'data.synthetic' must describe at least one array, for example "
                       "{input_ids: {shape: [128], dtype: \"int64\", low: 0, high: 256}}");
  }
}

void check_evaluation_data(Settings& settings) {
  auto eval = settings.texts("data.eval");
  if (holds(eval, "synthetic")) {
    settings.add_error(
        Issue::Kind::kConflict, "data.eval",
        "'data.eval' is synthetic, but an evaluation reads its data once and synthetic data is endless; name files");
  }
  if (settings.integer("train.eval_interval") > 0 && eval.empty()) {
    settings.add_error(Issue::Kind::kConflict, "train.eval_interval",
                       "'train.eval_interval' has nothing to evaluate on: set 'data.eval' too, or leave it out");
  }
}

void check_no_name_is_empty(Settings& settings) {
  for (const char* path : {"data.train", "data.eval", "data.inputs", "data.labels"}) {
    if (!holds(settings.texts(path), "")) continue;
    settings.add_error(Issue::Kind::kRange, path, fmt::format("'{}' has an empty name", path));
  }
}

void check_data_format(Settings& settings) {
  const std::string format = settings.text("data.format"), length = "data.seq_len";
  if ((format != "tokens" && format != "megatron") || settings.has_error(length)) return;
  if (!settings.at(length).value.is_null()) return;
  settings.add_error(Issue::Kind::kConflict, "data.format",
                     fmt::format("'data.format' {} needs '{}', the tokens of one sample", format, length));
}

// dataloader_drop_last is DeepSpeed's name of data.drop_last.
void apply_dataloader_drop_last(Settings& settings) {
  if (!settings.given("dataloader_drop_last") || settings.given("data.drop_last")) return;
  const Setting& theirs = settings.at("dataloader_drop_last");
  if (!theirs.value.is_null()) settings.solve("data.drop_last", theirs.value, theirs.origin);
}

// Whether they fit the pictures is known when the data is open.
void check_picture_keys(Settings& settings) {
  const auto length = [&](const std::string& path) { return settings.at(path).value.items.size(); };
  const std::string normalize = "data.normalize", size = "data.random_crop.size";
  const std::string mean = normalize + ".mean", deviation = normalize + ".std";
  const bool is_checked = !settings.has_error(mean) && !settings.has_error(deviation);
  if (is_checked && settings.given(normalize) && !settings.at(normalize).value.is_null() &&
      (length(mean) == 0 || length(mean) != length(deviation))) {
    settings.add_error(Issue::Kind::kConflict, normalize,
                       fmt::format("'{}' needs 'mean' and 'std' with one number for each channel, got {} and {}; for "
                                   "example {{\"mean\": [0.485, 0.456, 0.406], \"std\": [0.229, 0.224, 0.225]}}",
                                   normalize, length(mean), length(deviation)));
  }
  if (!settings.at(size).value.is_null() && !settings.has_error(size) && length(size) != 2) {
    settings.add_error(Issue::Kind::kRange, size,
                       fmt::format("'{}' must be [height, width], not {} numbers", size, length(size)));
  }
}

void apply_data_rules(Settings& settings) {
  check_training_data(settings);
  check_synthetic(settings);
  check_evaluation_data(settings);
  check_no_name_is_empty(settings);
  check_number_of_labels(settings);
  check_data_format(settings);
  check_picture_keys(settings);
  apply_dataloader_drop_last(settings);
  check_loss_name(settings);
  check_outputs(settings);
}

// The end of training: given steps replace the default of one epoch.
void apply_train_rules(Settings& settings) {
  if (settings.at("train.epochs").value.is_null() && settings.at("train.steps").value.is_null()) {
    const auto of_sampler = sampler_epochs(settings);
    settings.solve("train.epochs", Value::of_int(of_sampler.value_or(1)),
                   of_sampler ? "data_efficiency.data_sampling.num_epochs" : "default");
  }
  if (settings.at("vocabulary_size").value.integer % 8 != 0) {
    settings.note("vocabulary_size", fmt::format("'vocabulary_size' {} is not a multiple of 8, which is slower on GPUs",
                                                 settings.integer("vocabulary_size")));
  }
  if (settings.at("units").value.is_array() && settings.at("units").value.items.empty()) {
    settings.add_error(Issue::Kind::kRange, "units",
                       "'units' is an empty list; write \"auto\", or name classes or modules");
  }
}

constexpr const char* kModelOrigin = "model file";

// DeepSpeed's section has no switch, since there the model's code calls checkpointing. Here any key that requests
// recomputation enables it, unless `enabled` is given.
void apply_recomputation_rules(Settings& settings, const ModelDefaults& model) {
  const std::string section = "activation_checkpointing.";
  const auto is_true = [&](const char* key) { return settings.boolean(section + key); };
  if (settings.at(section + "enabled").value.is_null()) {
    const bool is_requested = is_true("partition_activations") || is_true("cpu_checkpointing") ||
                              is_true("contiguous_memory_optimization") ||
                              settings.integer("pipeline.activation_checkpoint_interval") > 0 ||
                              !settings.at(section + "number_checkpoints").value.is_null();
    const bool is_default = !is_requested && !model.recomputes;
    settings.solve(section + "enabled", Value::of_bool(!is_default),
                   is_requested ? "the keys that ask for it"
                   : is_default ? "default"
                                : kModelOrigin);
    if (!is_requested && model.recomputes && !model.units.empty() && !settings.given("units")) {
      std::vector<Value> units;
      for (const auto& unit : model.units) units.push_back(Value::of_string(unit));
      settings.solve("units", Value::of_array(std::move(units)), kModelOrigin);
    }
  }
  for (const char* kernels : {"kernels.fused_regions", "kernels.weight_gradient"}) {
    if (!is_true("selective") || settings.boolean(kernels)) continue;
    settings.note(section + "selective",
                  fmt::format("'activation_checkpointing.selective' has no effect: '{}' is false", kernels));
  }
  if (is_true("partition_activations") && settings.boolean("tensor_parallel.sequence_parallel")) {
    settings.note(section + "partition_activations",
                  "'activation_checkpointing.partition_activations' has no effect beside recomputation: "
                  "tensor_parallel.sequence_parallel has split what blocks pass on already");
  } else if (is_true("partition_activations") && settings.integer("tensor_parallel.size") == 1) {
    settings.note(section + "partition_activations",
                  "'activation_checkpointing.partition_activations' has no effect beside recomputation: saved inputs "
                  "are split among tensor ranks, and tensor_parallel.size is 1");
  }
}

void apply_loss_rules(Settings& settings, const ModelDefaults& model) {
  if (!model.averages_over_labels || settings.given("loss_average")) return;
  settings.solve("loss_average", Value::of_string("tokens"), kModelOrigin);
}

std::optional<int64_t> number_if_given(const Settings& settings, const std::string& path, bool& is_auto) {
  const Setting& setting = settings.at(path);
  is_auto = setting.origin == "auto";
  if (!setting.given() || is_auto || setting.value.is_null()) return std::nullopt;
  return setting.value.integer;
}

}  // namespace

void apply_rules(Settings& settings, const ModelDefaults& model) {
  apply_precision_rules(settings);
  apply_zero_rules(settings);
  apply_data_rules(settings);
  apply_train_rules(settings);
  apply_data_efficiency_rules(settings);
  apply_sample_rules(settings);
  apply_metric_rules(settings);
  apply_pipeline_rules(settings);
  apply_kernel_rules(settings);
  apply_tensor_parallel_rules(settings);
  apply_recomputation_rules(settings, model);
  apply_loss_rules(settings, model);
  apply_optimizer_rules(settings);
  apply_offload_rules(settings);
  apply_monitoring_rules(settings);
  apply_scheduler_rules(settings);
}

std::string apply_batch(Settings& settings, int64_t data_ranks, int64_t ranks_per_model) {
  const std::string kPaths[] = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"};
  bool autos[3];
  BatchRequest request;
  request.train_batch = number_if_given(settings, kPaths[0], autos[0]);
  request.micro_batch = number_if_given(settings, kPaths[1], autos[1]);
  request.accumulation = number_if_given(settings, kPaths[2], autos[2]);
  request.auto_batch = autos[0] || autos[1] || autos[2];
  request.data_ranks = data_ranks;
  request.ranks_per_model = ranks_per_model;

  const auto solution = solve_batch(request);
  if (!solution.ok()) {
    auto blamed = std::find_if(std::begin(kPaths), std::end(kPaths), [&](const auto& p) { return settings.given(p); });
    settings.add_error(Issue::Kind::kBatch, blamed == std::end(kPaths) ? kPaths[0] : *blamed, solution.error());
    return {};
  }
  if (!request.train_batch && !request.micro_batch && !request.auto_batch) {
    settings.note("no batch size given: micro batch 1");
  }
  const int64_t values[] = {solution->batch.train_batch, solution->batch.micro_batch, solution->batch.accumulation};
  const bool fixed[] = {request.train_batch.has_value(), request.micro_batch.has_value(),
                        request.accumulation.has_value()};
  bool nothing_given = !fixed[0] && !fixed[1];
  for (int i = 0; i < 3; ++i) {
    if (fixed[i]) continue;
    bool by_default = nothing_given && !request.auto_batch && i == 1;
    bool accumulation_default = i == 2 && !request.train_batch && !autos[2];
    std::string origin = autos[i] ? "auto" : by_default || accumulation_default ? "default" : "solved";
    settings.solve(kPaths[i], Value::of_int(values[i]), origin);
  }
  return solution->explanation;
}

}  // namespace dslaunch::config
