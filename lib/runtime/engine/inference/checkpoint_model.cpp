#include "runtime/engine/inference/checkpoint_model.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/model/script/load_script_model.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

std::string require_skeleton(CheckpointReader& reader) {
  if (auto path = reader.skeleton()) return *path;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("checkpoint '{}' has no model.pt, so there is no model to run", reader.path()));
}

// Holds whole parameters, read once: there is nothing to all-gather and nothing to reduce.
class LoadedCheckpoint : public CheckpointModel, public UnitParameters {
 public:
  explicit LoadedCheckpoint(const std::string& path)
      : reader_(path), model_(model::script::load_script_model(require_skeleton(reader_), {})) {
    const auto& table = model_->facts.table;
    for (size_t i = 0; i < table.parameters.size(); ++i) {
      const auto& parameter = table.parameters[i];
      const bool frozen = reader_.has(parameter.name, "frozen");
      at::Tensor value = at::empty(parameter.shape, parameter.dtype);
      reader_.read_into(parameter.name, frozen ? "frozen" : "master", 0, value);
      if (!parameter.trainable) model_->tensors.set_frozen_value(static_cast<int>(i), value);
      values_.push_back(std::move(value));
    }
    for (auto& [name, value] : model_->tensors.buffers()) {
      if (!reader_.has(name, "buffer")) continue;
      const at::Tensor saved = at::empty(reader_.find(name)->shape, value.options());
      reader_.read_into(name, "buffer", 0, saved);
      write_buffer(value, saved);
    }
    model_->runnable->set_unit_parameters(this);
  }

  model::Model& model() override { return *model_; }

  UnitValues acquire(int unit, UnitCall) override {
    UnitValues out;
    for (int parameter : model_->facts.table.units[unit].parameters) out.parameters.push_back(values_[parameter]);
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor>) override {}

 private:
  CheckpointReader reader_;
  std::unique_ptr<model::Model> model_;
  std::vector<at::Tensor> values_;
};

}  // namespace

std::unique_ptr<CheckpointModel> load_checkpoint_model(const std::string& path) {
  return std::make_unique<LoadedCheckpoint>(path);
}

}  // namespace dslaunch::runtime::engine::inference
