#include "runtime/checkpoint/deepspeed/pipeline_states.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/deepspeed/tied_modules.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

LayerTensors tensors_of_layer(const TorchFile& file) {
  if (!file.root().is(pickle::Kind::kDict)) refuse_file(file, "is not a layer of a pipeline: it holds no dict");
  LayerTensors out;
  for (const auto& [name, tensor] : tensors_of(file, file.root())) out.emplace(name, tensor);
  return out;
}

// Joins what the stages say; names become those of the whole model.
class Joining {
 public:
  Joining(const CheckpointFiles& files, const std::map<int, TorchFile>& layer_files, std::vector<StageStates>& stages)
      : files_(files), layer_files_(layer_files), stages_(stages) {
    for (const auto& [layer, file] : layer_files) layers_.emplace(layer, tensors_of_layer(file));
  }

  ModelStates run() {
    require_one_run();
    for (const auto& stage : stages_) require_layers(stage);
    std::vector<const ModelStates*> models;
    for (const auto& stage : stages_) models.push_back(&stage.model);
    const TiedModules tied(layers_, models);
    ModelStates out = stages_.front().model;
    out.trainable_groups.clear();
    out.buffers.clear();
    out.shared.clear();
    for (size_t stage = 0; stage < stages_.size(); ++stage) rename(tied, stage, out);
    add_layers(tied, out);
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(ExitCode::kBadInput, fmt::format("the checkpoint '{}' {}", files_.directory, what));
  }

  void require_one_run() const {
    const ModelStates& first = stages_.front().model;
    for (const auto& stage : stages_) {
      const ModelStates& model = stage.model;
      if (model.model_parallel_size > static_cast<int64_t>(stages_.size())) {
        refuse(fmt::format("is not complete: '{}' is of {} pipeline stages, and the model states of {} are there",
                           file_name(stage.file.path()), model.model_parallel_size, stages_.size()));
      }
      if (model.global_steps != first.global_steps || model.skipped_steps != first.skipped_steps) {
        refuse(fmt::format("is mixed: '{}' is of step {}, '{}' of step {}", file_name(stages_.front().file.path()),
                           first.global_steps, file_name(stage.file.path()), model.global_steps));
      }
      if (model.lists_trainable != first.lists_trainable) {
        refuse(fmt::format("is mixed: of '{}' and '{}' one was written with ZeRO and one without",
                           file_name(stages_.front().file.path()), file_name(stage.file.path())));
      }
    }
  }

  // A layer without a file is a function, unless its stage says otherwise.
  void require_layers(const StageStates& stage) const {
    for (const auto& parameter : stage.model.all_trainable()) {
      const auto [layer, inside] = split_layer_name(parameter.name);
      if (layer < 0) continue;
      const auto shape = require_tensor(stage, layer, inside).place(inside).shape;
      if (shape == parameter.shape) continue;
      refuse_file(layer_files_.at(layer),
                  fmt::format("is of another model: '{}' has the shape {}, and '{}' lists {}", inside,
                              shape_text(shape), file_name(stage.file.path()), shape_text(parameter.shape)));
    }
    for (const auto& name : stage.model.buffers) {
      const auto [layer, inside] = split_layer_name(name);
      if (layer >= 0) require_tensor(stage, layer, inside);
    }
  }

  const StoredTensor& require_tensor(const StageStates& stage, int layer, const std::string& inside) const {
    const auto tensors = layers_.find(layer);
    if (tensors == layers_.end()) {
      refuse(fmt::format("is not complete: layer_{:02}-model_states.pt is missing, and '{}' lists '{}.{}'", layer,
                         file_name(stage.file.path()), layer, inside));
    }
    const auto tensor = tensors->second.find(inside);
    if (tensor != tensors->second.end()) return tensor->second;
    refuse_file(layer_files_.at(layer), fmt::format("is of another model: it has no '{}', which '{}' lists", inside,
                                                    file_name(stage.file.path())));
  }

  void rename(const TiedModules& tied, size_t stage, ModelStates& out) {
    ModelStates& own = stages_[stage].model;
    for (auto& group : own.trainable_groups) {
      auto& joined = out.trainable_groups.emplace_back();
      for (auto& parameter : group) {
        auto place = tied.place(stage, parameter.name);
        parameter.name = std::move(place.name);
        parameter.is_replica = place.is_replica;
        if (!parameter.is_replica) joined.push_back(parameter);
      }
    }
    for (const auto& name : own.buffers) {
      for (auto& each : tied.buffer_names(name)) out.buffers.insert(std::move(each));
    }
    for (const auto& [alias, kept] : own.shared) {
      out.shared.emplace_back(tied.place(stage, alias).name, tied.place(stage, kept).name);
    }
  }

  void add_layers(const TiedModules& tied, ModelStates& out) const {
    for (const auto& [layer, tensors] : layers_) {
      // In the order of the state dict.
      for (auto& [inside, tensor] : tensors_of(layer_files_.at(layer), layer_files_.at(layer).root())) {
        const std::string name = fmt::format("{}.{}", layer, inside), kept = tied.kept_name(layer, inside);
        if (kept.empty()) {
          out.module.emplace_back(name, tensor);
        } else {
          out.shared.emplace_back(name, kept);
        }
      }
    }
  }

  const CheckpointFiles& files_;
  const std::map<int, TorchFile>& layer_files_;
  std::vector<StageStates>& stages_;
  std::map<int, LayerTensors> layers_;
};

}  // namespace

PipelineStates::PipelineStates(const CheckpointFiles& files, bool check_sums) {
  for (const auto& [layer, path] : files.layers)
    layers_.emplace(std::piecewise_construct, std::forward_as_tuple(layer), std::forward_as_tuple(path, check_sums));
  stages_.reserve(files.stages.size());
  for (const auto& stage : files.stages) {
    auto& opened = stages_.emplace_back(StageStates{TorchFile(stage.model_states, check_sums), {}, {}});
    opened.model = read_stage_model_states(opened.file);
    for (const auto& path : stage.optim_states) opened.optim_files.emplace_back(path, check_sums);
  }
  model_ = Joining(files, layers_, stages_).run();
}

}  // namespace dslaunch::runtime::deepspeed
