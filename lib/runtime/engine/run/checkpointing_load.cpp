// Resuming a run from a checkpoint.
#include <ATen/ATen.h>

#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_directory.hpp"
#include "runtime/checkpoint/name_match.hpp"
#include "runtime/device/random_state.hpp"
#include "runtime/engine/run/checkpointing.hpp"
#include "runtime/engine/run/resume_changes.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/state/local_slice_layout.hpp"
#include "runtime/state/tensor_bytes.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

using Names = std::set<std::string>;

Names names_missing_in_checkpoint(const NameMatch& match) {
  return {match.only_model.begin(), match.only_model.end()};
}

bool has_fresh_moments(const config::CheckpointLoad& load_options) {
  return load_options.weights_only || !load_options.optimizer_states;
}

// Elements of this rank's part of a parameter, out of whatever slices the checkpoint has.
void read_local(RestoreSource& source, const ParameterInfo& info, const std::string& state, int64_t begin,
                const at::Tensor& out) {
  for (const auto& part : LocalSliceLayout(info).parts(begin, begin + out.numel())) {
    part.fill(
        out, [&](const at::Tensor& values) { source.read_into(info.name, state, part.begin(), values, part.slice()); });
  }
}

}  // namespace

DataPosition Checkpointing::resume(const std::string& from, const std::optional<std::string>& begin_from) {
  if (from.empty()) return {};
  // A run that resumes its own checkpoint loads all of it: checkpoint.load applies to checkpoints from elsewhere, and a
  // restart of the job must not start its steps from scratch.
  const config::CheckpointLoad load_options = from == "auto" ? config::CheckpointLoad{} : options_.checkpoint.load;
  const RestoreOptions options{
      dir_, from, options_.placement, device_, timeout_, begin_from ? options_.job : "", options_.watchdog};
  const auto restored = restore_checkpoint(options, store_, groups_.world, [&](RestoreSource& source) {
    if (from == "auto") resize_buffers(source);
    load(source, load_options);
  });
  if (!restored) {
    const std::string start = begin_from.value_or("");
    if (groups_.world.rank() == 0) {
      log::info("--resume auto: no {} in {}, starting {}",
                begin_from ? "intact checkpoint of this job" : "complete checkpoint", dir_,
                start.empty() ? "from scratch" : "from '" + start + "' again");
    }
    return resume(start, begin_from);
  }
  if (groups_.world.rank() == 0) report_loaded(*restored, load_options);
  if (load_options.weights_only) return {};
  if (from != "auto" && options_.saves) continue_from(*restored);
  last_step_ = restored->metadata.step;
  return restored->metadata.position;
}

// The run has returned to one of its own earlier checkpoints. If the run ends before its next save, it must resume from
// that checkpoint, and not from a later one that it has abandoned.
void Checkpointing::continue_from(const Restored& restored) const {
  std::error_code elsewhere;
  if (groups_.world.rank() != share_.leader ||
      !std::filesystem::equivalent(std::filesystem::path(restored.path).parent_path(), dir_, elsewhere)) {
    return;
  }
  try {
    point_latest(dir_, restored.metadata.step);
  } catch (const Error& error) {
    log::warning("{}; --resume auto may resume from a later step than {}", error.what(), restored.metadata.step);
  }
}

// Buffers whose shape forward has changed (a table that grew with the inputs) are in the run's own checkpoint with
// their new shape.
void Checkpointing::resize_buffers(RestoreSource& source) {
  for (auto& [name, value] : model_.tensors.buffers()) {
    const SavedTensor* saved = source.reader().find(name);
    if (saved == nullptr || !saved->is_buffer || value.sizes() == at::IntArrayRef(saved->shape)) continue;
    value.set_(at::empty(saved->shape, value.options()));
  }
}

void Checkpointing::load(RestoreSource& source, const config::CheckpointLoad& load_options) {
  const auto match = match_names(metadata({}).parameters, source.metadata().parameters);
  if (!match.shapes.empty() || (load_options.strict && !match.fits())) {
    const char* const advice =
        match.shapes.empty()
            ? "\n  \"checkpoint\": {\"load\": {\"strict\": false}} with --resume PATH loads the common part"
            : "";
    throw UserError(ExitCode::kBadInput, describe_misfit(match, source.reader().path()) + advice);
  }
  loaded_frozen_.clear();
  moment_starts_ = find_moment_starts(source.metadata(), load_options);
  restore_engine(source, load_options, match);
  restore_frozen(source, match);
  restore_buffers(source, match);
  if (load_options.weights_only) return;
  if (auto rng = source.rng_state(groups_.world.rank(), groups_.mesh))
    device::restore_random_state(tensor_of_bytes(*rng), device_);
}

// A parameter that the checkpoint does not hold as trained begins its own steps now.
std::map<std::string, int64_t> Checkpointing::find_moment_starts(const CheckpointMetadata& saved,
                                                                 const config::CheckpointLoad& load_options) const {
  std::map<std::string, int64_t> out;
  if (has_fresh_moments(load_options)) return out;
  std::map<std::string, int64_t> trained;
  for (const auto& tensor : saved.parameters) {
    if (tensor.trainable) trained[tensor.name] = tensor.moments_since;
  }
  const int64_t now = applied_steps(saved);
  for (const auto& tensor : metadata({}).parameters) {
    if (!tensor.trainable) continue;
    const auto found = trained.find(tensor.name);
    if (const int64_t start = found != trained.end() ? found->second : now; start != 0) out[tensor.name] = start;
  }
  return out;
}

// State that the checkpoint lacks starts as in a new run. A parameter may have been trained before and be frozen now,
// or vice versa; then there are no moments.
void Checkpointing::restore_engine(RestoreSource& source, const config::CheckpointLoad& load_options,
                                   const NameMatch& match) {
  const bool fresh_moments = has_fresh_moments(load_options);
  const Names absent = names_missing_in_checkpoint(match);
  const auto initial = setup::initial_values(model_, options_.init, options_.model_path);
  const auto read = [&](int parameter, const std::string& state, int64_t begin, at::Tensor out) {
    const auto& info = model_.facts.table.parameters[static_cast<size_t>(parameter)];
    const SavedTensor* saved = source.reader().find(info.name);
    const bool is_weight = state == "master";
    if (absent.count(info.name) && is_weight) {
      initial(parameter, begin, out);
    } else if (!info.trainable) {
      out.copy_(read_frozen(source, {parameter, begin, out.numel()}));
    } else if (!is_weight && (fresh_moments || absent.count(info.name) || !saved->trainable)) {
      return false;
    } else {
      read_local(source, info, is_weight ? weight_state(*saved) : state, begin, out);
    }
    return true;
  };
  const auto& saved = source.metadata();
  const auto barrier = [&] { source.barrier(); };
  if (load_options.weights_only) {
    engine_.restore({.fresh_moments = true}, read, barrier);
    return;
  }
  step::RestoredCounters counters{saved.step, saved.scalars, fresh_moments, {}};
  for (const auto& parameter : model_.facts.table.parameters) {
    const auto start = moment_starts_.find(parameter.name);
    counters.moment_starts.push_back(start == moment_starts_.end() ? 0 : start->second);
  }
  engine_.restore(counters, read, barrier);
}

const at::Tensor& Checkpointing::read_frozen(RestoreSource& source, const step::FrozenPart& part) {
  const auto& info = model_.facts.table.parameters[part.parameter];
  at::Tensor& values = loaded_frozen_[{part.parameter, part.begin}];
  values = at::empty({part.count}, info.dtype);
  read_local(source, info, weight_state(*source.reader().find(info.name)), part.begin, values);
  return values;
}

// Restores frozen parameters that every rank holds whole.
void Checkpointing::restore_frozen(RestoreSource& source, const NameMatch& match) {
  const Names absent = names_missing_in_checkpoint(match);
  const auto& table = model_.facts.table;
  for (size_t i = 0; i < table.parameters.size(); ++i) {
    const int parameter = static_cast<int>(i);
    const auto& info = table.parameters[i];
    if (info.trainable || absent.count(info.name) || engine_.shards_frozen(parameter)) continue;
    const at::Tensor value = read_frozen(source, {parameter, 0, info.numel}).view(info.shape);
    model_.tensors.set_frozen_value(parameter, value.to(device_, options_.dtypes(info.name, info.dtype)));
  }
}

void Checkpointing::restore_buffers(RestoreSource& source, const NameMatch& match) {
  const Names absent = names_missing_in_checkpoint(match);
  for (auto& [name, value] : model_.tensors.buffers()) {
    if (absent.count(name)) continue;
    at::Tensor host = at::empty(value.sizes(), value.options().device(at::kCPU));
    source.read_into(name, weight_state(*source.reader().find(name)), 0, host);
    write_buffer(value, host);
  }
}

void Checkpointing::report_loaded(const Restored& restored, const config::CheckpointLoad& load_options) const {
  const auto match = match_names(metadata({}).parameters, restored.metadata.parameters);
  if (!match.only_model.empty()) {
    log::warning("not in the checkpoint, keeping initial values: {}", list_names(match.only_model));
  }
  if (!match.only_saved.empty()) log::warning("only in the checkpoint, not used: {}", list_names(match.only_saved));
  if (load_options.weights_only) {
    log::info("loaded the weights of {} (step {}); steps, schedule and data start from scratch", restored.path,
              restored.metadata.step);
    return;
  }
  log::info("resumed from {} (step {}){}", restored.path, restored.metadata.step,
            load_options.optimizer_states ? "" : ", with fresh moments");
  for (const auto& change : describe_changes(restored.metadata, metadata({}), load_options.optimizer_states)) {
    change.is_warning ? log::warning("{}", change.text) : log::info("{}", change.text);
  }
}

}  // namespace dslaunch::runtime::engine::run
