#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"

#include <cmath>
#include <tuple>

#include "base/format.hpp"
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

// For a model whose file lists the trained parameters: its weights are whole in that file or, at stage 3, split among
// the optimizer states.
void read_zero_states(const std::vector<TorchFile>& model_files, const std::vector<TorchFile>& optim_files,
                      const ModelStates& model, StateBuilder& builder, ImportedState& out) {
  const bool whole_weights = !out.files.model_states_by_rank;
  if (!whole_weights && optim_files.empty()) {
    builder.refuse("holds no optimizer states, which have the weights of stage 3");
  }
  std::set<std::string> trained;
  for (const auto& parameter : model.all_trainable()) {
    trained.insert(parameter.name);
    builder.add_trainable(parameter);
  }
  if (!whole_weights) {
    for (const auto& parameter : model.frozen) builder.add_frozen(parameter);
  }
  builder.add_module([&](const std::string& name) { return trained.count(name) > 0; }, whole_weights);
  if (!whole_weights) {
    read_stage3(model_files, model, optim_files, builder, out);
  } else if (optim_files.empty()) {
    out.notes.emplace_back(
        "it holds no optimizer states (DeepSpeed 0.18.2 saves none with bf16 at stage 0): only weights are imported, "
        "as the model computed with them");
  } else {
    read_partitioned(model, optim_files, builder, out);
  }
}

}  // namespace

ImportedState read_checkpoint(const std::string& dir, const ReadOptions& options) {
  ImportedState out;
  out.files = find_files(dir, options.tag);
  const auto model_files = open_all(out.files.model_states, options.check_sums);
  const auto optim_files = open_all(out.files.optim_states, options.check_sums);
  const ModelStates model = read_model_states(model_files[0]);
  out.version = model.version;
  out.stage = optim_files.empty() ? 0 : stage_of(optim_files[0]);
  out.shards.resize(std::max<size_t>(1, optim_files.size()));
  read_counters(model, out);
  read_scaler(find_scaler(model, optim_files), (optim_files.empty() ? model_files : optim_files)[0],
              out.metadata.scalars);

  StateBuilder builder(out, model_files[0], model);
  if (!model.lists_trainable) {
    read_unsharded(model_files[0], model, options, builder, out);
  } else {
    read_zero_states(model_files, optim_files, model, builder, out);
  }
  if (!out.files.model_states_by_rank) builder.masters_from_module();
  builder.finish();
  if (!out.files.model_states_by_rank) builder.compare_masters_with_module();
  if (out.optimizer_states.empty() && !optim_files.empty()) {
    out.notes.emplace_back("its optimizer has no state yet: only weights are imported");
  }
  return out;
}

}  // namespace dslaunch::runtime::deepspeed
