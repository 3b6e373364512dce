#include "runtime/engine/inference/infer_model.hpp"

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/engine/inference/streamed_parameters.hpp"
#include "runtime/engine/setup/file_verification.hpp"
#include "runtime/engine/setup/initial_values.hpp"
#include "runtime/engine/setup/pretrained_values.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/local_slice_layout.hpp"
#include "runtime/state/mask_minimum.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

namespace fs = std::filesystem;

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kFloat      ? "fp32"
         : dtype == at::kHalf     ? "fp16"
         : dtype == at::kBFloat16 ? "bf16"
                                  : at::toString(dtype);
}

// Read once, and held whole.
class HeldParameters final : public UnitParameters {
 public:
  explicit HeldParameters(const ParameterTable& table) : table_(table), values_(table.parameters.size()) {}

  void set(size_t parameter, at::Tensor value) { values_[parameter] = std::move(value); }
  UnitValues acquire(int unit, UnitCall) override {
    UnitValues out;
    const UnitInfo& info = table_.units[static_cast<size_t>(unit)];
    for (const int parameter : info.parameters) out.parameters.push_back(values_[static_cast<size_t>(parameter)]);
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor>) override {}

 private:
  const ParameterTable& table_;
  std::vector<at::Tensor> values_;
};

class LoadedModel : public InferModel {
 public:
  LoadedModel(std::string file, const ModelSource& source) : file_(std::move(file)), source_(source) {
    setup::FileVerification({file_}).finish();
    auto passes = inference_passes(source.dtype.value_or(at::kFloat));
    if (source.device.is_cuda()) passes.kernel_library = source.kernels;
    const auto tensor = tensor_options(source);
    model_ = source.predicts_tokens ? model::torchscript::load_token_model(
                                          file_, passes, /*keeps_units=*/!source.nvme_path.empty(), tensor)
                                    : model::torchscript::load_script_model(file_, {}, passes, tensor);
    if (tensor.is_on()) use_tensor_ranks();
    hugging_face_ = read_hugging_face_facts(read_model_metadata(file_).text, file_);
  }

  model::Model& model() override { return *model_; }
  const ModelSource& source() const override { return source_; }
  const std::string& file() const override { return file_; }
  const std::optional<HuggingFaceFacts>& hugging_face() const override { return hugging_face_; }
  int64_t weight_bytes() const override {
    int64_t sum = quantized_bytes_;
    for (size_t i = 0; i < table().parameters.size(); ++i) {
      const ParameterInfo& info = table().parameters[i];
      if (is_held(i)) sum += info.numel * static_cast<int64_t>(c10::elementSize(dtype_of(info.dtype)));
    }
    return sum;
  }
  std::string weight_types() const override {
    std::set<std::string> names;
    for (size_t i = 0; i < table().parameters.size(); ++i) {
      if (is_held(i)) names.insert(dtype_name(dtype_of(table().parameters[i].dtype)));
    }
    std::vector<std::string> all(names.begin(), names.end());
    if (!quantized_.weights.empty()) all.insert(all.begin(), model::weight_type_name(*source_.weight_type));
    return fmt::format("{}", fmt::join(all, ", "));
  }

 protected:
  // Elements of a parameter from `begin` on.
  using Read = std::function<void(size_t parameter, int64_t begin, const at::Tensor& out)>;

  // After buffers have their values.
  void take_parameters(const Read& read, const std::function<void()>& drop_pages) {
    if (source_.weight_type) quantize_layers();
    model_->to_device(
        source_.device, [this](const std::string&, at::ScalarType own) { return dtype_of(own); }, are_quantized());
    if (source_.nvme_path.empty()) {
      hold_parameters(read);
    } else {
      stream_parameters(read, drop_pages);
    }
    model_->runnable->set_unit_parameters(parameters_.get());
    model_->runnable->train(false);
  }

  const ParameterTable& table() const { return model_->facts.table; }

 private:
  static model::placement::TensorParallelOptions tensor_options(const ModelSource& source) {
    if (source.tensor_ranks == nullptr) return {};
    return {.size = source.tensor_ranks->size(), .rank = source.tensor_ranks->rank(), .overlap = false};
  }

  void use_tensor_ranks() {
    model_->runnable->set_tensor_group(*source_.tensor_ranks);
    const auto& placements = model_->facts.placements;
    log::info("{}", placements->summary());
    for (const auto& line : placements->whole_lines()) log::debug("{}", line);
  }

  at::ScalarType dtype_of(at::ScalarType own) const {
    return at::isFloatingType(own) ? source_.dtype.value_or(own) : own;
  }

  // Whether its value is in its slot.
  bool is_held(size_t parameter) const {
    const auto own = quantized_.weights.find(static_cast<int>(parameter));
    return own == quantized_.weights.end() || own->second.is_read_otherwise;
  }

  std::vector<bool> are_quantized() const {
    std::vector<bool> out(table().parameters.size());
    for (const auto& [parameter, weight] : quantized_.weights) out[static_cast<size_t>(parameter)] = true;
    return out;
  }

  void quantize_layers() {
    auto layers = model_->runnable->quantize_layers(*source_.weight_type, table());
    const char* name = model::weight_type_name(*source_.weight_type);
    const auto refuse = [&](const std::string& why) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("model '{}' has no linear layers whose weights can be {}: {}", file_, name, why));
    };
    if (!layers.ok()) {
      const auto& tokens = model_->facts.tokens;
      refuse(tokens && !tokens->ok() ? tokens->error() : layers.error());
    }
    const auto& kept = layers->kept;
    if (layers->weights.empty()) refuse(kept.empty() ? "its graph multiplies by no parameters" : kept[0]);
    if (!kept.empty()) {
      log::info("{} of {} weights of linear layers stay as they are, the others become {}: {}{}", kept.size(),
                kept.size() + layers->weights.size(), name, kept[0], kept.size() > 1 ? ", ..." : "");
    }
    quantized_ = *std::move(layers);
  }

  at::Tensor read_value(const Read& read, size_t parameter) {
    const ParameterInfo& info = table().parameters[parameter];
    at::Tensor value = at::empty({info.numel}, info.dtype);
    read(parameter, 0, value);
    return value.view(info.shape);
  }

  at::Tensor as_computed(const at::Tensor& value) const {
    const auto dtype = dtype_of(value.scalar_type());
    return fitted(value, dtype).to(source_.device, dtype);
  }

  at::Tensor read_whole(const Read& read, size_t parameter) { return as_computed(read_value(read, parameter)); }

  // The part of a parameter that its slot gets: nothing, where all uses have the quantized value.
  at::Tensor take_value(const Read& read, size_t parameter) {
    const auto own = quantized_.weights.find(static_cast<int>(parameter));
    if (own == quantized_.weights.end()) return read_whole(read, parameter);
    const at::Tensor value = read_value(read, parameter);
    const auto dtype = dtype_of(value.scalar_type());
    quantized_bytes_ += own->second.take(value.to(source_.device), dtype);
    own->second.take = nullptr;
    return own->second.is_read_otherwise ? as_computed(value) : at::empty({0}, at::dtype(dtype).device(source_.device));
  }

  void hold_parameters(const Read& read) {
    auto held = std::make_unique<HeldParameters>(table());
    for (size_t i = 0; i < table().parameters.size(); ++i) {
      at::Tensor value = take_value(read, i);
      if (!table().parameters[i].trainable) model_->tensors.set_frozen_value(static_cast<int>(i), value);
      held->set(i, std::move(value));
    }
    parameters_ = std::move(held);
  }

  // But for frozen parameters that units do not get: the model holds them.
  void stream_parameters(const Read& read, const std::function<void()>& drop_pages) {
    std::vector<bool> is_of_unit(table().parameters.size());
    for (const UnitInfo& unit : table().units) {
      for (const auto* members : {&unit.parameters, &unit.frozen}) {
        for (const int parameter : *members) is_of_unit[static_cast<size_t>(parameter)] = true;
      }
    }
    for (size_t i = 0; i < is_of_unit.size(); ++i) {
      if (!is_of_unit[i]) model_->tensors.set_frozen_value(static_cast<int>(i), read_whole(read, i));
    }
    offload::ParameterFileOptions options;
    options.directories = {source_.nvme_path};
    options.content = "the parameters";
    parameters_ = std::make_unique<StreamedParameters>(table(), options,
                                                       [&](int parameter, int64_t begin, const at::Tensor& out) {
                                                         read(static_cast<size_t>(parameter), begin, out);
                                                         drop_pages();
                                                       });
  }

  const std::string file_;
  const ModelSource source_;
  std::optional<HuggingFaceFacts> hugging_face_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<UnitParameters> parameters_;
  model::QuantizedLayers quantized_;
  int64_t quantized_bytes_ = 0;
};

class CheckpointModel final : public LoadedModel {
 public:
  CheckpointModel(std::unique_ptr<CheckpointReader> reader, const std::string& skeleton, const ModelSource& source)
      : LoadedModel(skeleton, source), reader_(std::move(reader)) {
    for (auto& [name, value] : model().tensors.buffers()) {
      if (!reader_->has(name, "buffer")) continue;
      const at::Tensor saved = at::empty(reader_->find(name)->shape, value.options());
      reader_->read_into(name, "buffer", 0, saved);
      write_buffer(value, saved);
    }
    take_parameters(
        [this](size_t parameter, int64_t begin, const at::Tensor& out) {
          const auto& info = table().parameters[parameter];
          const char* state = reader_->has(info.name, "frozen") ? "frozen" : "master";
          LocalSliceLayout(info).read(begin, out, [&](int64_t first, const at::Tensor& part) {
            reader_->read_into(info.name, state, first, part);
          });
        },
        [this] { reader_->drop_pages(); });
  }
  std::string job_config() const override { return reader_->metadata().config; }

 private:
  const std::unique_ptr<CheckpointReader> reader_;
};

class FileModel final : public LoadedModel {
 public:
  explicit FileModel(const ModelSource& source) : LoadedModel(source.path, source) {
    const std::string from = weights_of(source);
    if (!from.empty()) {
      setup::take_pretrained_values(model(), {.from = from}, source.path, /*replaces=*/!source.weights.empty());
    }
    require_values(source);
    const auto read = setup::initial_values(model(), std::nullopt, source.path);
    take_parameters(
        [&](size_t parameter, int64_t begin, const at::Tensor& out) { read(static_cast<int>(parameter), begin, out); },
        [] {});
  }

 private:
  std::string weights_of(const ModelSource& source) const {
    if (!source.weights.empty()) return source.weights;
    const auto& facts = hugging_face();
    std::error_code ignored;
    const bool is_recorded =
        facts && facts->source_kind == "directory" && fs::is_directory(facts->source_name, ignored);
    return is_recorded ? facts->source_name : std::string();
  }

  void require_values(const ModelSource& source) {
    for (size_t i = 0; i < table().parameters.size(); ++i) {
      if (model().initial.source() || table().parameters[i].numel <= 1) continue;
      if (!model().initial.is_empty(static_cast<int>(i))) continue;
      throw UserError(ExitCode::kBadInput,
                      fmt::format("the model file '{}' has no weights (it was exported with --empty): name a directory "
                                  "of Hugging Face that has them (--weights DIR), or a checkpoint of a run",
                                  source.path));
    }
  }
};

bool has_file_that_ends_in(const fs::path& directory, const char* suffix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().ends_with(suffix)) return true;
  }
  return false;
}

void refuse_hugging_face_directory(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(fs::path(path) / "config.json", ignored) || !has_file_that_ends_in(path, ".safetensors")) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("'{}' is a directory of Hugging Face: it has weights and no code to run; name the model "
                  "file, too: dslaunch infer MODEL.pt --weights '{}' (tools/export --hf '{}' MODEL.pt makes "
                  "one)",
                  path, path, path));
}

// Files that stand for the checkpoint around them.
bool is_in_checkpoint(const fs::path& path) {
  const auto name = path.filename();
  return name == "latest" || name == "best" || name == "manifest.json";
}

}  // namespace

// What trains faster does not belong here; the decode graph has passes of its own (model/decoding).
model::GraphPassOptions inference_passes(at::ScalarType compute_dtype) {
  model::GraphPassOptions passes;
  passes.kernels = {};
  for (bool config::Kernels::*key :
       {&config::Kernels::cross_entropy, &config::Kernels::layer_norm, &config::Kernels::bias_gradient,
        &config::Kernels::weight_gradient, &config::Kernels::residual_gradient, &config::Kernels::constants,
        &config::Kernels::attention_masks, &config::Kernels::grouped_attention, &config::Kernels::fused_regions,
        &config::Kernels::gemm_autotuning}) {
    passes.kernels.*key = false;
  }
  passes.compute_dtype = compute_dtype;
  return passes;
}

std::unique_ptr<InferModel> open_model(const ModelSource& source) {
  std::error_code ignored;
  if (fs::is_regular_file(source.path, ignored) && !is_in_checkpoint(source.path)) {
    return std::make_unique<FileModel>(source);
  }
  refuse_hugging_face_directory(source.path);
  if (!source.weights.empty()) {
    throw UserError(ExitCode::kUsage, fmt::format("--weights goes with a model file, and '{}' is a checkpoint, which "
                                                  "has its own weights",
                                                  source.path));
  }
  auto reader = std::make_unique<CheckpointReader>(source.path);
  const auto skeleton = reader->skeleton();
  if (!skeleton) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("checkpoint '{}' has no model.pt, so there is no model to run", reader->path()));
  }
  return std::make_unique<CheckpointModel>(std::move(reader), *skeleton, source);
}

}  // namespace dslaunch::runtime::engine::inference
