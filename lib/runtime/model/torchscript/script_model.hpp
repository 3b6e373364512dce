// The TorchScript model that runs: its calls of units, its modes, its errors.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/model/analysis/unit_assignment.hpp"
#include "runtime/model/interface/graph_pass_options.hpp"
#include "runtime/model/interface/runnable_model.hpp"
#include "runtime/model/recomputation/recomputation_plan.hpp"
#include "runtime/model/stages/stage_graph.hpp"
#include "runtime/model/tensor_parallel/probe.hpp"
#include "runtime/model/tensor_parallel/tensor_group.hpp"
#include "runtime/model/torchscript/unit_interception.hpp"
#include "runtime/state/model_metadata.hpp"

namespace dslaunch::runtime::model::torchscript {

class ScriptModel : public RunnableModel {
 public:
  struct Parts {
    std::string path;  // of the file
    torch::jit::Module module;
    analysis::UnitAssignment units;
    std::vector<torch::jit::Module> frozen_in_eval;  // modules that stay in eval mode while the others train
    bool is_half_file = false;                       // the file has parameters in half precision
    bool calls_autograd = false;                     // the whole model's forward computes gradients itself
    GraphPassOptions pass_options = {};              // for the passes that wait for the device
    stages::StageCall stage = {};                    // of a model that is not cut: nothing is carried
    std::vector<RecordedInput> recorded = {};        // by argument; without a shape: the file's metadata has none
    std::vector<std::string> token_inputs = {};      // of a forward that was cut to what predicts tokens: its arguments
    tensor_parallel::TensorGroupPtr group = {};      // that the graphs refer to; null: they refer to none
    tensor_parallel::PendingProbe probe = {};
    std::optional<bool> overlap = {};  // TensorParallelOptions::overlap
  };
  // Replaces the forwards of the units' classes.
  explicit ScriptModel(Parts parts);

  std::vector<std::string> set_device(at::Device device, at::ScalarType dtype) override;
  void set_unit_parameters(UnitParameters* parameters) override { interception_.set_unit_parameters(parameters); }
  void set_tensor_group(comm::Communicator& ranks) override;
  ProbeReport probe_split(at::Device device) override;
  std::string set_recomputation(const RecomputationOptions& options) override;
  std::string set_token_dropping(const TokenDroppingOptions& options) override;
  void keep_positions(int64_t step, int64_t count) override { interception_.token_dropping()->begin_step(step, count); }
  std::string take_recomputation_profile() override { return interception_.take_recomputation_profile(); }
  void set_unit_observer(UnitObserver* observer) override { interception_.set_unit_observer(observer); }
  void train(bool training) override;
  StageOutput run_stage(const std::vector<at::Tensor>& inputs, const CarriedValues& carried) override;
  GraphReport report_graphs() const override;
  Result<std::unique_ptr<CachedForward>> make_cached_forward(const CacheOptions& options, int64_t vocabulary) override;
  Result<QuantizedLayers> quantize_layers(WeightType type, const ParameterTable& table) override;

 private:
  void throw_failure();
  [[noreturn]] void refuse_inputs(const std::vector<at::Tensor>& inputs, const CarriedValues& carried,
                                  const std::exception& error) const;

  // fixed after construction
  const std::string path_;
  torch::jit::Module module_;
  std::vector<torch::jit::Module> frozen_in_eval_;
  const std::vector<ParameterLocation> traced_state_;
  const bool is_half_file_, calls_autograd_;
  const GraphPassOptions pass_options_;
  const stages::StageCall stage_;
  const std::vector<RecordedInput> recorded_;
  const std::vector<std::string> token_inputs_;
  const tensor_parallel::TensorGroupPtr group_;
  const std::optional<bool> overlap_;
  tensor_parallel::PendingProbe probe_;  // until it has run
  units::BoundUnit root_;
  std::vector<recomputation::RecomputationCandidate> blocks_;  // units larger than a single layer, in order of use
  // on the thread that runs the model
  at::Device device_ = at::kCPU;
  bool has_device_ = false;
  UnitInterception interception_;
};

}  // namespace dslaunch::runtime::model::torchscript
