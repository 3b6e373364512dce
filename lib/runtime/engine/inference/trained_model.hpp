// A model in the middle of its training, to write texts: the forward that predicts tokens, cut out of the run's model
// file, with the weights that the run has now. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/model/interface/model.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::engine::inference {

// The parameters of a model in training, by parameter, each whole; undefined: one that the model holds itself. For
// parameters that stay whole when their unit is released. Calls each unit once.
std::vector<at::Tensor> whole_parameters(const ParameterTable& table, UnitParameters& units);

class TrainedModel final : public InferModel {
 public:
  // `source`: path, tokenizer, device and dtype count. `dtypes`: in which the run computes. `trained` must outlive this
  // object. `takes_units`: parameters will come unit by unit (use_units). Throws as load_token_model() does.
  TrainedModel(const model::Model& trained, ModelSource source, const model::DtypeOf& dtypes, bool takes_units);
  ~TrainedModel() override;

  // Takes buffers and frozen parameters as they are now, and the others from whole_parameters(). They must not change
  // while the model is used.
  void use(const std::vector<at::Tensor>& parameters);
  // The same with parameters that are whole only while their unit is called: those of the trained model's units.
  // `begin_pass` is called before the root of each forward.
  void use_units(UnitParameters& units, std::function<void()> begin_pass);
  // After the last forward.
  void end_units();

  model::Model& model() override { return *model_; }
  const ModelSource& source() const override { return source_; }
  const std::string& file() const override { return source_.path; }
  const std::optional<HuggingFaceFacts>& hugging_face() const override { return hugging_face_; }
  int64_t weight_bytes() const override { return 0; }  // they are the run's

 private:
  class Whole;
  class ByUnit;
  void take_held();

  const model::Model& trained_;
  const ModelSource source_;
  std::unique_ptr<model::Model> model_;
  std::optional<HuggingFaceFacts> hugging_face_;
  std::vector<size_t> numbers_;  // by parameter: its number in the trained model
  std::unique_ptr<Whole> whole_;
  std::unique_ptr<ByUnit> by_unit_;
};

}  // namespace dslaunch::runtime::engine::inference
