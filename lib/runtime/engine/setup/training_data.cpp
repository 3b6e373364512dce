#include "runtime/engine/setup/training_data.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/data/label_alignment.hpp"
#include "runtime/engine/setup/sequence_dims.hpp"
#include "runtime/sharding/all_gather_object.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

// The graph shows how many classes the last dim of the outputs can hold. If the labels' last dim has the same length,
// the loss may match those two dims, and the classes are in the second dim; the graph does not show their number.
bool may_bound_classes(const ArrayInfo& labels, int64_t length_of_last_dim) {
  return labels.sample_shape.empty() || labels.sample_shape.back() != length_of_last_dim;
}

// Of the entry of forward's result that the loss takes, as far as names tell it: step/output_choice.hpp.
std::optional<int64_t> num_classes_of(const model::ModelFacts& model, const std::string& outputs) {
  const auto names = outputs.empty() ? std::vector<std::string>{"", "logits", "0"} : std::vector{outputs};
  for (const auto& name : names) {
    if (const auto found = model.num_classes.find(name); found != model.num_classes.end()) return found->second;
  }
  return std::nullopt;
}

// The arrays with which forward is called.
std::vector<size_t> arguments_of(const config::JobConfig& config, const ArraySelection& selection) {
  std::vector<size_t> arguments = selection.inputs;
  if (config.loss.empty()) arguments.insert(arguments.end(), selection.labels.begin(), selection.labels.end());
  return arguments;
}

// Bounds found in the model's graph, by the array that feeds the argument.
std::map<std::string, std::vector<ArrayLimit>> limits_of(const model::ModelFacts& model,
                                                         const config::JobConfig& config,
                                                         const std::vector<ArrayInfo>& arrays,
                                                         const ArraySelection& selection) {
  const auto arguments = arguments_of(config, selection);
  std::map<std::string, std::vector<ArrayLimit>> limits;
  for (const auto& limit : model.index_limits) {
    if (limit.input >= arguments.size()) continue;
    const ArrayInfo& array = arrays[arguments[limit.input]];
    if (limit.ignored && !may_bound_classes(array, limit.bound)) continue;
    limits[array.name].push_back({limit.bound, limit.ignored, limit.range});
  }
  if (const auto classes = num_classes_of(model, config.outputs); config.loss == "cross_entropy" && classes) {
    for (size_t label : selection.labels) {
      if (may_bound_classes(arrays[label], *classes))
        limits[arrays[label].name].push_back({*classes, kIgnoredLabel, {}});
    }
  }
  for (const auto& [array, of_array] : limits) {
    for (const auto& limit : of_array) log::debug("array '{}' must be below {}", array, limit.bound);
  }
  return limits;
}

// As the graph shows it, else as the exporter has recorded it.
std::vector<ArgumentForm> forms_of(const model::ModelFacts& model) {
  const auto& inputs = model.inputs;
  std::vector<ArgumentForm> forms(inputs.names.size());
  for (const auto& recorded : inputs.recorded) {
    const auto own = std::find(inputs.names.begin(), inputs.names.end(), recorded.name);
    if (own == inputs.names.end()) continue;
    forms[static_cast<size_t>(own - inputs.names.begin())] = {
        .is_floating = recorded.dtype.find("float") != recorded.dtype.npos, .num_dims = recorded.shape.size() + 1};
  }
  for (const auto& argument : model.index_arguments) {
    if (argument.input < forms.size()) forms[argument.input].is_floating = false;
  }
  return forms;
}

std::string described(const ArrayInfo& array) {
  return fmt::format("'{}' of the data is {}[{}]", array.name, c10::toString(array.dtype),
                     fmt::join(array.sample_shape, ", "));
}

// Probabilities of classes are labels too.
bool may_be_probabilities(const model::ModelFacts& model, const model::IndexArgument& argument,
                          const ArrayInfo& array) {
  const auto classes =
      std::find_if(model.index_limits.begin(), model.index_limits.end(),
                   [&](const model::IndexLimit& limit) { return limit.input == argument.input && limit.ignored; });
  return argument.is_label && (classes == model.index_limits.end() || !may_bound_classes(array, classes->bound));
}

void require_integers(const model::ModelFacts& model, const SampleSource& source, const std::vector<ArrayInfo>& arrays,
                      const std::vector<size_t>& arguments) {
  for (const auto& argument : model.index_arguments) {
    if (argument.input >= arguments.size()) continue;
    const size_t index = arguments[argument.input];
    const ArrayInfo& array = arrays[index];
    if (!c10::isFloatingType(array.dtype) || may_be_probabilities(model, argument, array)) continue;
    throw UserError(ExitCode::kBadInput,
                    fmt::format("array {}, and forward takes {} for its argument '{}': save the array as integers, for "
                                "example as int64; file: {}",
                                described(array), argument.is_label ? "numbers of classes" : "indices",
                                model.inputs.names[argument.input], source.describe(index, 0)));
  }
}

void require_lengths(const model::ModelFacts& model, const SampleSource& source, const std::vector<size_t>& arguments) {
  for (const auto& limit : model.length_limits) {
    if (limit.input >= arguments.size()) continue;
    const size_t index = arguments[limit.input];
    const auto& shape = source.arrays()[index].sample_shape;
    const auto num_dims = static_cast<int64_t>(shape.size()) + 1;
    const int64_t dim = limit.dim < 0 ? limit.dim + num_dims : limit.dim;
    if (dim < 1 || dim >= num_dims || shape[static_cast<size_t>(dim - 1)] <= limit.bound) continue;
    const int64_t length = shape[static_cast<size_t>(dim - 1)];
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("array {}, and the model has {} positions: export it with --seq {}, or write samples of "
                    "at most {} tokens (tools/tokenize --seq, data.seq_len); file: {}",
                    described(source.arrays()[index]), limit.bound, length, limit.bound, source.describe(index, 0)));
  }
}

std::set<std::string> index_arrays(const model::ModelFacts& model, const config::JobConfig& config,
                                   const std::vector<ArrayInfo>& arrays, const ArraySelection& selection) {
  std::set<std::string> names;
  const auto arguments = arguments_of(config, selection);
  for (const auto& argument : model.index_arguments) {
    if (argument.input < arguments.size()) names.insert(arrays[arguments[argument.input]].name);
  }
  if (!config.loss.empty()) {
    for (size_t label : selection.labels) names.insert(arrays[label].name);
  }
  return names;
}

// Arrays named like forward's arguments feed these arguments; the log names the arrays that are not used.
void name_unused(const std::vector<ArrayInfo>& arrays, const ArraySelection& selection) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    const bool used = std::count(selection.inputs.begin(), selection.inputs.end(), i) +
                          std::count(selection.labels.begin(), selection.labels.end(), i) >
                      0;
    if (!used) log::info("array '{}' of the data is not used as an argument of forward", arrays[i].name);
  }
}

// Micro batches are weighted, and metrics computed, by the labels that are counted in one array.
void require_countable_labels(const std::vector<ArrayInfo>& arrays, const ArraySelection& selection,
                              const char* what = "\"loss_average\": \"tokens\" counts") {
  if (selection.labels.size() == 1) return;
  std::vector<std::string> names;
  for (const auto& array : arrays) names.push_back(array.name);
  throw UserError(ExitCode::kBadInput,
                  fmt::format("{} the labels of one array, but the data names {}: set data.labels, or --labels, to "
                              "one of '{}'",
                              what, selection.labels.size(), fmt::join(names, "', '")));
}

// The array that becomes the argument with indices of tokens, or of classes (`ignored`); empty if it is not known.
std::optional<size_t> array_of(bool ignored, const model::ModelFacts& model, const ArraySelection& selection) {
  std::vector<size_t> arrays = selection.inputs;
  arrays.insert(arrays.end(), selection.labels.begin(), selection.labels.end());
  const auto& names = model.inputs.names;
  const auto named = std::find(names.begin(), names.end(), ignored ? "labels" : "input_ids");
  auto at = static_cast<size_t>(named - names.begin());
  if (named == names.end()) {
    const auto limit =
        std::find_if(model.index_limits.begin(), model.index_limits.end(),
                     [ignored](const model::IndexLimit& each) { return each.ignored.has_value() == ignored; });
    if (limit == model.index_limits.end()) return std::nullopt;
    at = limit->input;
  }
  return at < arrays.size() ? std::optional(arrays[at]) : std::nullopt;
}

// Of a model without a record: whether it shifts its labels is not known.
void warn_of_equal_labels(const std::shared_ptr<const SampleSource>& source, const ArraySelection& selection) {
  for (size_t labels : selection.labels) {
    for (size_t inputs : selection.inputs) {
      if (inputs == labels || find_label_alignment(source, inputs, labels) != LabelAlignment::kSame) continue;
      log::warning(
          "in the first samples of {} the array '{}' is equal to '{}': a model that predicts the next token, and does "
          "not shift its labels itself, learns to repeat its input from that, with a loss that falls to 0; "
          "tools/tokenize "
          "writes shifted labels, and a record in the model file says which it takes (docs/huggingface.md#metadata)",
          source->describe(labels, 0), source->arrays()[labels].name, source->arrays()[inputs].name);
      return;
    }
  }
}

// A causal model trained on labels of the other kind learns to repeat its input, or the token after the next one; its
// loss falls all the same.
void require_labels_of(const model::ModelFacts& model, const std::shared_ptr<const SampleSource>& source,
                       const ArraySelection& selection) {
  const LabelConvention convention = model.labels;
  if (convention == LabelConvention::kNotRecorded) return;
  const auto inputs = array_of(/*ignored=*/false, model, selection),
             labels = array_of(/*ignored=*/true, model, selection);
  if (!inputs || !labels) return;
  const auto found = find_label_alignment(source, *inputs, *labels);
  const std::string where = source->describe(*labels, 0);
  if (convention == LabelConvention::kSame && found == LabelAlignment::kNext) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("labels would be shifted twice: in {} they are the tokens after the input_ids already, and "
                    "the model shifts them again, so it would learn the token after the next one; export it "
                    "without '--labels same', or write the data with 'tools/tokenize --labels same'",
                    where));
  }
  if (convention == LabelConvention::kNext && found == LabelAlignment::kSame) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("labels would not be shifted at all: in {} they are the input_ids, and the model expects "
                    "the tokens that follow, so it would learn to repeat its input; shift the data, as tools/tokenize "
                    "does, or export a model of Hugging Face with '--labels same'",
                    where));
  }
}

// Of one source, for forward and the loss; `assembly` receives what is checked and converted in them.
ArraySelection choose_arrays(const model::ModelFacts& model, const config::JobConfig& config,
                             const std::shared_ptr<SampleSource>& source, AssemblyOptions& assembly) {
  const ForwardArguments forward{model.inputs.names, model.inputs.num_required, config.loss.empty(), forms_of(model)};
  const auto arrays = arrays_of_forward(config.data, source->arrays());
  auto selection = select_arrays(arrays, config.data.inputs, config.data.labels, forward);
  for (const auto* chosen : {&selection.inputs, &selection.labels}) source->prepare(*chosen);
  const auto arguments = arguments_of(config, selection);
  require_integers(model, *source, arrays, arguments);
  require_lengths(model, *source, arguments);
  if (config.loss_average == config::LossAverage::kTokens) require_countable_labels(source->arrays(), selection);
  if (forward.takes_labels) require_labels_of(model, source, selection);
  assembly.limits = limits_of(model, config, source->arrays(), selection);
  assembly.indices = index_arrays(model, config, source->arrays(), selection);
  assembly.pictures = picture_transforms(config.data, *source, selection.inputs, assembly.compute_dtype);
  return selection;
}

// The arrays that a shorter sequence cuts go to `data.loader`.
DataSchedule open_schedule(const model::ModelFacts& model, const config::JobConfig& config, TrainingData& data,
                           int rank) {
  const config::DataEfficiency& efficiency = config.data_efficiency;
  DataSchedule schedule;
  schedule.sequence_length = efficiency.sequence_length;
  if (efficiency.random_ltd) schedule.kept_positions = efficiency.random_ltd->kept;
  schedule.curriculum = read_curriculum_index(efficiency, data.train->num_samples());
  if (!efficiency.sequence_length && !efficiency.dynamic_batching) return schedule;
  const SequenceDims sequence =
      find_sequence_dims(model, data.train->arrays(), arguments_of(config, data.train_arrays), data.train_arrays);
  data.loader.assembly.sequence_dims = sequence.of_arrays;
  if (const auto& length = efficiency.sequence_length; length && length->maximum > sequence.length && rank == 0) {
    log::info("curriculum_learning: max_difficulty {} is more than the {} tokens of a sample, which stays whole then",
              length->maximum, sequence.length);
  }
  if (const auto& dynamic = efficiency.dynamic_batching) {
    auto lengths = read_sample_lengths(dynamic->metrics_path, data.train->num_samples(), sequence.length);
    schedule.batches = std::make_shared<DynamicBatches>(std::move(lengths), *dynamic, config.batch.train_batch,
                                                        config.pipeline.stages > 1, efficiency.seed);
  }
  return schedule;
}

// For a loss from outside, the number of labels it averages over is an assumption.
void name_counted_labels(const std::vector<ArrayInfo>& arrays, const ArraySelection& selection,
                         const std::string& loss) {
  const auto whose = loss.empty() ? "the loss that forward returns" : fmt::format("loss '{}'", loss);
  log::info(
      "\"loss_average\": \"tokens\": {} counts as the mean over the labels of '{}' that are not {}; if it is the mean "
      "over fewer labels (a model that shifts its labels), the weights are off by the difference",
      whose, arrays[selection.labels.at(0)].name, kIgnoredLabel);
}

}  // namespace

TrainingData open_training_data(const model::ModelFacts& model, const config::JobConfig& config, const comm::Mesh& mesh,
                                int rank, at::ScalarType compute_dtype, bool pin) {
  TrainingData out;
  // Our own losses compute in fp32; 16 bits can represent neither 1013.7 nor, in fp16, 70000.
  const bool by_labels = config.loss_average == config::LossAverage::kTokens;
  // For "mse", -100 is an ordinary number.
  out.loader = {mesh.coordinates(rank).data,
                mesh.data,
                config.batch,
                {compute_dtype, config::is_own_loss(config.loss) ? at::kFloat : compute_dtype, pin,
                 config.loss != "mse", config.loss.empty() && model.labels == LabelConvention::kSame}};
  out.eval_loader = out.loader;
  if (!config.data.train.empty() || config.data.synthetic_train) {
    std::shared_ptr<SampleSource> samples = open_train_samples(config.data);
    out.train_arrays = choose_arrays(model, config, samples, out.loader.assembly);
    out.train = samples;
    if (rank == 0) name_unused(out.train->arrays(), out.train_arrays);
    out.schedule = open_schedule(model, config, out, rank);
  }
  if (!config.data.eval.empty()) {
    std::shared_ptr<SampleSource> samples = open_eval_samples(config.data);
    if (samples->num_samples() == 0) {  // now, not after hours of training
      throw UserError(ExitCode::kBadInput, "the evaluation data (data.eval) has no samples");
    }
    out.eval_arrays = choose_arrays(model, config, samples, out.eval_loader.assembly);
    out.eval = samples;
  }
  if (rank == 0 && model.labels == LabelConvention::kNotRecorded && (out.train || out.eval)) {
    warn_of_equal_labels(out.train ? out.train : out.eval, out.train ? out.train_arrays : out.eval_arrays);
  }
  if (const auto& measured = out.eval ? out.eval : out.train; measured && !config.train.metrics.empty()) {
    require_countable_labels(measured->arrays(), out.eval ? out.eval_arrays : out.train_arrays, "train.metrics needs");
  }
  if (by_labels && rank == 0 && config.loss.empty() && model.averages_over_labels) {
    log::info("the loss is the mean over all labels that count, as the model file asks for (\"loss_average\")");
  } else if (by_labels && rank == 0 && !config::is_own_loss(config.loss)) {
    if (out.train) {
      name_counted_labels(out.train->arrays(), out.train_arrays, config.loss);
    } else if (out.eval) {
      name_counted_labels(out.eval->arrays(), out.eval_arrays, config.loss);
    }
  }
  return out;
}

int64_t count_steps(const TrainingData& data, const config::JobConfig& config) {
  const auto& train = config.train;
  const bool pass_ends = data.train && data.train->num_samples() != SampleSource::kEndless;
  std::optional<int64_t> epochs = train.epochs;
  if (const auto& most = config.data_efficiency.num_epochs) epochs = std::min(epochs.value_or(*most), *most);
  if (!data.train || (train.steps && !(epochs && pass_ends))) return train.steps.value_or(0);
  const int64_t in_epochs = steps_in_epochs(data, config, epochs.value_or(1));
  return std::min(train.steps.value_or(in_epochs), in_epochs);
}

int64_t steps_in_epochs(const TrainingData& data, const config::JobConfig& config, int64_t epochs) {
  if (!data.schedule.batches) return runtime::steps_in_epochs(*data.train, config.data, config.batch, epochs);
  int64_t steps = 0;
  const bool is_endless = __builtin_mul_overflow(data.schedule.batches->num_steps(), epochs, &steps);
  return is_endless ? std::numeric_limits<int64_t>::max() : steps;
}

void require_evaluation_data(const TrainingData& data, const config::Data& config) {
  if (data.eval || (data.train && !config.synthetic_train)) return;
  throw UserError(
      ExitCode::kBadInput,
      data.train
          ? "--eval_only needs finite data, and synthetic data is endless: set \"data\": {\"eval\": PATH} in the config"
          : "--eval_only needs data: set \"data\": {\"eval\": PATH} in the config");
}

MicroBatch on_device(Batch batch, at::Device device) {
  MicroBatch out{std::move(batch.inputs), std::move(batch.labels), batch.num_tokens, batch.num_labels};
  const auto copy = [device](const at::Tensor& tensor) { return tensor.to(device, /*non_blocking=*/true); };
  for (auto* tensors : {&out.inputs, &out.labels}) {
    for (auto& tensor : *tensors) tensor = copy(tensor);
  }
  for (const PictureWork& work : batch.pictures) {
    at::Tensor& pictures = out.inputs[work.input];
    pictures = transform_pictures(*work.transform, pictures, work.views.defined() ? copy(work.views) : work.views);
  }
  return out;
}

void require_same_data(const TrainingData& data, comm::Communicator& world, at::Device device) {
  struct Counts {
    int64_t train = 0, eval = 0;
    bool operator==(const Counts&) const = default;
  };
  const Counts own{data.train ? data.train->num_samples() : 0, data.eval ? data.eval->num_samples() : 0};
  const auto all = gather_values(world, device, own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const bool train = all[rank].train != all[0].train;
    throw UserError(
        ExitCode::kBadInput,
        fmt::format(
            "rank 0 found {} samples of {} data and rank {} found {}: every host needs the same files for data.{}",
            train ? all[0].train : all[0].eval, train ? "training" : "evaluation", rank,
            train ? all[rank].train : all[rank].eval, train ? "train" : "eval"));
  }
}

}  // namespace dslaunch::runtime::engine::setup
