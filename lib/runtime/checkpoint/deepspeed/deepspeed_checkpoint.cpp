#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/format.hpp"
#include "runtime/checkpoint/deepspeed/pipeline_states.hpp"
#include "runtime/checkpoint/deepspeed/state_builder.hpp"
#include "runtime/state/saved_scalars.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

using pickle::Value;

std::vector<TorchFile> open_all(const std::vector<std::string>& paths, bool check_sums) {
  std::vector<TorchFile> files;
  files.reserve(paths.size());
  for (const auto& path : paths) files.emplace_back(path, check_sums);
  return files;
}

int stage_of(const TorchFile& optim_file) {
  const Value* inner = optim_file.root().find("optimizer_state_dict");
  const Value* stage = inner ? inner->find("zero_stage") : nullptr;
  // DeepSpeed's own optimizer for bf16 shards as stage 1 does.
  if (inner && !stage && inner->find("group_paddings")) return 1;
  const auto number = stage ? stage->as_integer() : std::nullopt;
  if (!number || *number < 1 || *number > 3) {
    refuse_file(optim_file, "is not an optimizer state of ZeRO: it does not name its stage");
  }
  return static_cast<int>(*number);
}

// The scaler is an object in ZeRO's files, and part of the optimizer's dict without ZeRO.
const Value* find_scaler(const ModelStates& model, const std::vector<TorchFile>& optim_files) {
  if (optim_files.empty()) return model.optimizer;
  const Value* inner = optim_files[0].root().find("optimizer_state_dict");
  return inner ? inner->find("loss_scaler") : nullptr;
}

bool is_scale(double value) {
  return value > 0 && std::isfinite(value);
}

// A run that resumes would refuse a value that does not fit, or train with it.
template <class Fits>
std::optional<double> scaler_number(const Value& scaler, const char* name, const TorchFile& file, Fits fits) {
  const Value* value = scaler.attribute(name);
  if (!value || value->is(pickle::Kind::kNone)) return std::nullopt;
  const auto number = value->as_number();
  if (number && fits(*number)) return number;
  refuse_file(file, fmt::format("is damaged: '{}' of its loss scaler is {}", name,
                                number ? fmt::format("{}", *number) : "no number"));
}

void read_scaler(const Value* scaler, const TorchFile& file, std::map<std::string, double>& scalars) {
  if (!scaler) return;
  const Value* dynamic = scaler->attribute("dynamic");
  if (!dynamic) dynamic = scaler->attribute("dynamic_loss_scale");
  const bool is_dynamic = dynamic && dynamic->as_number().value_or(0) != 0;
  const auto scale = scaler_number(*scaler, "cur_scale", file, is_scale);
  if (!scale || (*scale == 1 && !is_dynamic)) return;  // as in fp32 and bf16 runs
  scalars["loss_scale"] = *scale;
  const std::tuple<const char*, const char*, int64_t> kNames[] = {
      {"cur_iter", "loss_scale_iteration", 0},
      {"last_overflow_iter", "loss_scale_last_overflow", -1},  // -1: no overflow yet
      {"cur_hysteresis", "loss_scale_budget", 0}};
  for (const auto& [theirs, ours, least] : kNames) {
    const auto fits = [lowest = least](double value) { return is_count(value, lowest); };
    if (const auto value = scaler_number(*scaler, theirs, file, fits)) scalars[ours] = *value;
  }
}

void read_counters(const ModelStates& model, ImportedState& out) {
  auto& metadata = out.metadata;
  metadata.step = model.global_steps;
  metadata.position = {0, model.global_samples};
  metadata.config = model.config;
  out.skipped_steps = model.skipped_steps;
  const int64_t applied = model.global_steps - model.skipped_steps;
  metadata.scalars["applied_steps"] = static_cast<double>(applied);
  if (model.last_batch_iteration && *model.last_batch_iteration != applied - 1) {
    out.notes.push_back(
        fmt::format("its schedule stands at step {}, but {} steps were applied; the imported run takes the "
                    "learning rate of its own step count",
                    *model.last_batch_iteration + 1, applied));
  }
  if (!model.client_keys.empty()) {
    out.notes.push_back(fmt::format("client_state is left out: {}", fmt::join(model.client_keys, ", ")));
  }
}

constexpr char kNoOptimizerStates[] =
    "it holds no optimizer states (DeepSpeed 0.18.2 saves none with bf16 at stage 0): only weights are imported, "
    "as the model computed with them";

// The parameters of a model whose file lists the trained ones.
void add_parameters(const ModelStates& model, bool whole_weights, StateBuilder& builder) {
  std::set<std::string> trained;
  for (const auto& parameter : model.all_trainable()) {
    trained.insert(parameter.name);
    builder.add_trainable(parameter);
  }
  if (!whole_weights) {
    for (const auto& parameter : model.frozen) builder.add_frozen(parameter);
  }
  builder.add_module([&](const std::string& name) { return trained.count(name) > 0; }, whole_weights);
}

// The weights are whole in the model's file or, at stage 3, split among the optimizer states.
void read_zero_states(const std::vector<TorchFile>& model_files, const std::vector<TorchFile>& optim_files,
                      const ModelStates& model, StateBuilder& builder, ImportedState& out) {
  const bool whole_weights = !out.files.model_states_by_rank;
  if (!whole_weights && optim_files.empty()) {
    builder.refuse("holds no optimizer states, which have the weights of stage 3");
  }
  add_parameters(model, whole_weights, builder);
  if (!whole_weights) {
    read_stage3(model_files, model, optim_files, builder, out);
  } else if (optim_files.empty()) {
    out.notes.emplace_back(kNoOptimizerStates);
  } else {
    read_partitioned(model, optim_files, 0, builder, out);
  }
}

// `model_file`: of rank 0 or stage 0, as are `optim_files`.
void read_run(const TorchFile& model_file, const ModelStates& model, const std::vector<TorchFile>& optim_files,
              ImportedState& out) {
  out.version = model.version;
  out.stage = optim_files.empty() ? 0 : stage_of(optim_files[0]);
  read_counters(model, out);
  read_scaler(find_scaler(model, optim_files), optim_files.empty() ? model_file : optim_files[0], out.metadata.scalars);
}

void finish(StateBuilder& builder, bool whole_weights, bool has_optim_files, ImportedState& out) {
  if (whole_weights) builder.masters_from_module();
  builder.finish();
  if (whole_weights) builder.compare_masters_with_module();
  if (out.optimizer_states.empty() && has_optim_files) {
    out.notes.emplace_back("its optimizer has no state yet: only weights are imported");
  }
}

void read_data_parallel(const ReadOptions& options, ImportedState& out) {
  const auto model_files = open_all(out.files.model_states, options.check_sums);
  const auto optim_files = open_all(out.files.optim_states, options.check_sums);
  const ModelStates model = read_model_states(model_files[0]);
  out.shards.resize(std::max<size_t>(1, optim_files.size()));
  read_run(model_files[0], model, optim_files, out);
  StateBuilder builder(out, model);
  if (!model.lists_trainable) {
    read_unsharded({{&model_files[0], model.optimizer}}, model, options, builder, out);
  } else {
    read_zero_states(model_files, optim_files, model, builder, out);
  }
  finish(builder, !out.files.model_states_by_rank, !optim_files.empty(), out);
}

// Of one step of one data rank, by its config; 1 where that does not say.
int64_t micro_batches_of(const ModelStates& model) {
  const auto config = nlohmann::json::parse(model.config.empty() ? "{}" : model.config, nullptr, /*exceptions=*/false);
  const auto number = [&](const char* key) -> int64_t {
    const auto found = config.is_object() ? config.find(key) : config.end();
    return found != config.end() && found->is_number_integer() ? std::max<int64_t>(0, found->get<int64_t>()) : 0;
  };
  if (const int64_t given = number("gradient_accumulation_steps")) return given;
  const int64_t micro = number("train_micro_batch_size_per_gpu"),
                ranks = std::max<int64_t>(1, model.data_parallel_size);
  return micro > 0 ? std::max<int64_t>(1, number("train_batch_size") / micro / ranks) : 1;
}

void note_scale_of_moments(const ModelStates& model, ImportedState& out) {
  const int64_t count = micro_batches_of(model);
  if (out.optimizer_states.empty() || count == 1 || model.version != "0.18.2") return;
  out.notes.push_back(fmt::format(
      "CHECK THIS: the pipelines of DeepSpeed 0.18.2 add up the gradients of a step's micro batches without "
      "dividing by their number, here {0}: a first moment is {0} times what it is in a run that divides, a "
      "second moment {0} * {0} times, so updates are smaller until both have decayed",
      count));
}

void read_pipeline(const ReadOptions& options, ImportedState& out) {
  const PipelineStates pipeline(out.files, options.check_sums);
  const auto& stages = pipeline.stages();
  const ModelStates& model = pipeline.model();
  const size_t data_ranks = stages[0].optim_files.size();
  out.num_stages = static_cast<int>(stages.size());
  out.shards.resize(std::max<size_t>(1, stages.size() * data_ranks));
  read_run(stages[0].file, model, stages[0].optim_files, out);
  if (out.stage > 1)
    refuse_file(stages[0].optim_files[0], fmt::format("is of ZeRO stage {}, which no pipeline has", out.stage));
  StateBuilder builder(out, model);
  if (!model.lists_trainable) {
    std::vector<OptimizerPart> optimizers;
    for (const auto& stage : stages) optimizers.push_back({&stage.file, stage.model.optimizer});
    read_unsharded(optimizers, model, options, builder, out);
  } else {
    add_parameters(model, /*whole_weights=*/true, builder);
    if (data_ranks == 0) out.notes.emplace_back(kNoOptimizerStates);
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      read_partitioned(stages[stage].model, stages[stage].optim_files, stage * data_ranks, builder, out);
    }
  }
  finish(builder, /*whole_weights=*/true, data_ranks > 0, out);
  note_scale_of_moments(model, out);
}

}  // namespace

ImportedState read_checkpoint(const std::string& dir, const ReadOptions& options) {
  ImportedState out;
  out.files = find_files(dir, options.tag);
  if (out.files.is_pipeline()) {
    read_pipeline(options, out);
  } else {
    read_data_parallel(options, out);
  }
  return out;
}

}  // namespace dslaunch::runtime::deepspeed
