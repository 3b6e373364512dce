#include "runtime/engine/inference/checkpoint_model.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/engine/inference/streamed_parameters.hpp"
#include "runtime/engine/setup/file_verification.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/hugging_face_facts.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

std::string require_skeleton(CheckpointReader& reader) {
  if (auto path = reader.skeleton()) {
    setup::FileVerification({*path}).finish();
    return *path;
  }
  throw UserError(ExitCode::kBadInput,
                  fmt::format("checkpoint '{}' has no model.pt, so there is no model to run", reader.path()));
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

class LoadedCheckpoint final : public CheckpointModel {
 public:
  LoadedCheckpoint(const std::string& path, const std::string& directory)
      : reader_(path),
        skeleton_(require_skeleton(reader_)),
        model_(model::torchscript::load_script_model(skeleton_, {})) {
    if (directory.empty()) {
      hold_parameters();
    } else {
      stream_parameters(directory);
    }
    for (auto& [name, value] : model_->tensors.buffers()) {
      if (!reader_.has(name, "buffer")) continue;
      const at::Tensor saved = at::empty(reader_.find(name)->shape, value.options());
      reader_.read_into(name, "buffer", 0, saved);
      write_buffer(value, saved);
    }
    model_->runnable->set_unit_parameters(parameters_.get());
  }

  model::Model& model() override { return *model_; }

  std::string tokenizer() const override {
    const auto facts = read_hugging_face_facts(read_model_metadata(skeleton_).text, skeleton_);
    if (!facts || facts->source_kind == "architecture") return {};
    return fmt::format("'{}'{}", facts->source_name, facts->source_kind == "hub" ? " of the hub" : "");
  }

 private:
  const ParameterTable& table() const { return model_->facts.table; }

  void read(size_t parameter, int64_t begin, const at::Tensor& out) {
    const std::string& name = table().parameters[parameter].name;
    reader_.read_into(name, reader_.has(name, "frozen") ? "frozen" : "master", begin, out);
  }
  at::Tensor read_whole(size_t parameter) {
    const ParameterInfo& info = table().parameters[parameter];
    at::Tensor value = at::empty(info.shape, info.dtype);
    read(parameter, 0, value);
    return value;
  }

  void hold_parameters() {
    auto held = std::make_unique<HeldParameters>(table());
    for (size_t i = 0; i < table().parameters.size(); ++i) {
      at::Tensor value = read_whole(i);
      if (!table().parameters[i].trainable) model_->tensors.set_frozen_value(static_cast<int>(i), value);
      held->set(i, std::move(value));
    }
    parameters_ = std::move(held);
  }

  // But for frozen parameters that units do not get: the model holds them.
  void stream_parameters(const std::string& directory) {
    std::vector<bool> is_of_unit(table().parameters.size());
    for (const UnitInfo& unit : table().units) {
      for (const auto* members : {&unit.parameters, &unit.frozen}) {
        for (const int parameter : *members) is_of_unit[static_cast<size_t>(parameter)] = true;
      }
    }
    for (size_t i = 0; i < is_of_unit.size(); ++i) {
      if (!is_of_unit[i]) model_->tensors.set_frozen_value(static_cast<int>(i), read_whole(i));
    }
    offload::ParameterFileOptions options;
    options.directories = {directory};
    options.content = "the parameters";
    parameters_ = std::make_unique<StreamedParameters>(table(), options,
                                                       [&](int parameter, int64_t begin, const at::Tensor& out) {
                                                         read(static_cast<size_t>(parameter), begin, out);
                                                         reader_.drop_pages();
                                                       });
  }

  CheckpointReader reader_;
  const std::string skeleton_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<UnitParameters> parameters_;
};

}  // namespace

std::unique_ptr<CheckpointModel> load_checkpoint_model(const std::string& path, const std::string& directory) {
  return std::make_unique<LoadedCheckpoint>(path, directory);
}

}  // namespace dslaunch::runtime::engine::inference
