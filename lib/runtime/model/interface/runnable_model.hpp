// The part of a model that runs: a whole model, or one stage of it in a pipeline. TorchScript's types stay behind this
// interface. One thread runs a model; different models may run on different threads.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "runtime/model/interface/cached_forward.hpp"
#include "runtime/model/interface/carried_values.hpp"
#include "runtime/model/interface/graph_report.hpp"
#include "runtime/model/interface/placement_report.hpp"
#include "runtime/model/interface/quantized_layers.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::model {

// How units are recomputed in backward.
struct RecomputationOptions {
  std::optional<int64_t> number_checkpoints;  // groups that are recomputed as a whole; empty: see units_per_group
  int64_t units_per_group = 1;                // the last group may have fewer
  bool cpu_checkpointing = false;             // saved inputs are kept in host memory
  bool contiguous_memory = false;             // saved inputs are kept in one buffer
  bool partition_activations = false;         // each tensor rank keeps its part of the saved inputs
  bool synchronize = false;                   // wait for the device before and after each pass
  bool profile = false;                       // time both passes, which also waits for the device
  c10::Device device = c10::kCPU;
};

// Which blocks run on a random part of the positions in training.
struct TokenDroppingOptions {
  std::vector<int64_t> layers;  // of the model's blocks in order of use, counted from 0
  int64_t num_layers = 0;       // that the model is said to have
  bool batch_first = true;      // hidden states are [samples, positions, features]; false: positions first
  bool is_decoder = true;
  std::string mask_name;  // of the blocks' argument that is the mask; empty: it is told by its shape
  uint64_t seed = 0;      // the same on ranks that share a model
};

// The result of forward: a tensor, or the tensors of a tuple or dict.
struct ForwardResult {
  at::Tensor first;                // the tensor itself, a tuple's first element, a dict's "loss" (else its first entry)
  std::vector<at::Tensor> others;  // the rest in order
  at::Tensor named_loss;           // a dict's "loss" or a NamedTuple's field of that name; undefined: no such entry
  bool is_dict = false;
  // Of `first` and `others`, in their order: keys of a dict, fields of a NamedTuple, positions in another tuple or a
  // list. Empty: forward returned one tensor.
  std::vector<std::string> names;
  bool has_own_names = false;  // they are keys or fields
};

// What a stage computes for one micro batch: values for the next stage, or on the last one the result of the model.
struct StageOutput {
  CarriedValues carried;
  ForwardResult result;
};

// Observes the inputs and outputs of unit calls (the tensors inside tuples, lists and dicts one by one), nested as the
// calls are; unit 0 is the whole forward. On the thread that runs the model.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void on_enter(int unit, const std::vector<at::Tensor>& inputs) = 0;
  virtual void on_exit(int unit, const std::vector<at::Tensor>& outputs) = 0;
};

class RunnableModel {
 public:
  virtual ~RunnableModel() = default;

  // Changes what the model's code fixes (devices, constants out of range for `dtype`) to what this run has. `dtype`:
  // the smallest floating-point type of its parameters. Returns notes for the user, one line each. Before the first
  // forward.
  virtual std::vector<std::string> set_device(at::Device device, at::ScalarType dtype) = 0;
  // Provides parameters and takes gradients; must outlive all calls.
  virtual void set_unit_parameters(UnitParameters* parameters) = 0;
  // The ranks that share the GEMMs of a model that was loaded for one of several tensor ranks; must outlive all
  // calls.
  virtual void set_tensor_group(comm::Communicator& ranks) = 0;
  // After set_tensor_group(), once: compares units of such a model with their unsplit form, on random values, if it was
  // loaded with a probe. Collective over the tensor group. Throws the same error on all its ranks, with the first unit
  // and tensor that differ: 70, or 65 where the user has chosen how GEMMs are split.
  virtual ProbeReport probe_split(at::Device device) = 0;
  // From now on blocks are recomputed in backward instead of saving activations; returns one line that names them.
  // Before set_device().
  virtual std::string set_recomputation(const RecomputationOptions& options) = 0;
  // From now on these blocks get the positions that keep_positions() says; returns one line that names them. Throws
  // UserError(65) for blocks that the model does not have.
  virtual std::string set_token_dropping(const TokenDroppingOptions& options) = 0;
  // For the forwards of a step in training, after set_token_dropping().
  virtual void keep_positions(int64_t step, int64_t count) = 0;
  // With RecomputationOptions::profile: the times since the last call of this function, as one line; else empty.
  virtual std::string take_recomputation_profile() = 0;
  // For a diagnosis; null: no observer.
  virtual void set_unit_observer(UnitObserver* observer) = 0;
  virtual void train(bool training) = 0;
  // `inputs`: the arguments of the whole model's forward, on every stage the same (those that a stage does not read may
  // be undefined). `carried`: what the stage before returned, without history; tensors that require a gradient are
  // leaves. A model that is not cut is one stage, which carries nothing. Backward through a stage starts at all its
  // carried tensors that require a gradient, and leaves the gradients of `carried` in their grad().
  // Throws UserError(65) with the shapes when the model rejects its inputs.
  virtual StageOutput run_stage(const std::vector<at::Tensor>& inputs, const CarriedValues& carried) = 0;
  // After set_device().
  virtual GraphReport report_graphs() const = 0;
  // Of a model that was loaded to predict tokens, in evaluation mode, after set_device() and set_unit_parameters().
  // `vocabulary`: ids below it are rows of its tables. The result refers to this object. Error: why tokens cannot be
  // kept, as a clause.
  virtual Result<std::unique_ptr<CachedForward>> make_cached_forward([[maybe_unused]] const CacheOptions& options,
                                                                     [[maybe_unused]] int64_t vocabulary) {
    return Failure{"its forward was not cut to what predicts tokens"};
  }
  // From now on linear layers of a model that was loaded to predict tokens have weights of this type, once these have
  // taken their values; the others are as before. Before set_device(). `table`: of this model. Error: why no layer can
  // have them, as a clause.
  virtual Result<QuantizedLayers> quantize_layers([[maybe_unused]] WeightType type,
                                                  [[maybe_unused]] const ParameterTable& table) {
    return Failure{"its forward was not cut to what predicts tokens"};
  }
  // Of a model that is not cut.
  ForwardResult forward(const std::vector<at::Tensor>& inputs) { return run_stage(inputs, {}).result; }
};

}  // namespace dslaunch::runtime::model
