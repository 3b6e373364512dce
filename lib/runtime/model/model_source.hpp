// A model as the runtime sees it: parameters, units, buffers and one call. TorchScript is one source; its types stay in
// this room so that other sources can be added. Only one thread uses a model at a time.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/graph_pass_options.hpp"
#include "runtime/model/recomputation_options.hpp"
#include "runtime/state/index_range.hpp"
#include "runtime/state/module_info.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

// The result of forward: a tensor, or the tensors of a tuple or dict.
struct ForwardResult {
  at::Tensor first;                // the tensor itself, a tuple's first element, a dict's "loss" (else its first entry)
  std::vector<at::Tensor> others;  // the rest in order
  at::Tensor named_loss;           // a dict's "loss" or a NamedTuple's field of that name; undefined: no such entry
  bool is_dict = false;
};

// A part of an integer input that must stay below a bound: ids of an embedding, class labels.
struct IndexLimit {
  size_t input = 0;                // index among forward's arguments (without self)
  int64_t bound = 0;               // 0 <= id < bound
  std::optional<int64_t> ignored;  // for labels: the loss's ignore_index, which is allowed as well
  IndexRange range;                // the part of the input
};

// The arguments of forward, without self.
struct InputSignature {
  std::vector<std::string> names;
  size_t num_required = 0;  // those without a default value
};

// Observes the inputs and outputs of unit calls (the tensors inside tuples, lists and dicts one by one), nested as the
// calls are; unit 0 is the whole forward. On the thread that runs the model.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void on_enter(int unit, const std::vector<at::Tensor>& inputs) = 0;
  virtual void on_exit(int unit, const std::vector<at::Tensor>& outputs) = 0;
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual const ParameterTable& table() const = 0;
  virtual const InputSignature& inputs() const = 0;
  virtual std::vector<IndexLimit> index_limits() const = 0;
  // Number of classes of forward's first output, if a loss outside the model combines it with labels; empty: not known.
  virtual std::optional<int64_t> num_output_classes() const = 0;

  // The value in the file, on the host, read-only; for an empty parameter a tensor with all strides 0.
  virtual at::Tensor initial_value(int parameter) const = 0;
  virtual bool is_empty(int parameter) const = 0;
  virtual std::vector<std::pair<std::string, at::Tensor>> buffers() const = 0;
  // The tree of modules, for reports; empty: not known.
  virtual std::vector<ModuleInfo> modules() const { return {}; }

  // From a tensor's name and its own dtype to the dtype in which this run computes with it.
  using DtypeOf = std::function<at::ScalarType(const std::string& name, at::ScalarType own)>;
  // Moves buffers, constants and frozen parameters to the device and converts buffers and parameters to the dtypes
  // wanted. Sharded frozen parameters (by parameter) do not move: units get them when they run.
  virtual void to_device(at::Device device, const DtypeOf& dtype_of, const std::vector<bool>& is_sharded) = 0;
  virtual void set_frozen_value(int parameter, const at::Tensor& value) = 0;
  virtual at::Tensor frozen_value(int parameter) const = 0;  // undefined: not on this rank now
  // Provides parameters and takes gradients; must outlive all calls.
  virtual void set_unit_parameters(UnitParameters* parameters) = 0;
  // From now on blocks are recomputed in backward instead of saving activations; returns one line that names them.
  virtual std::string set_recomputation(const RecomputationOptions& options) = 0;
  // With RecomputationOptions::profile: the times since the last call of this function, as one line; else empty.
  virtual std::string take_recomputation_profile() = 0;
  // Whether a run of the model may be captured and replayed, as far as is known before it runs (capture_obstacles.hpp).
  virtual Result<> check_capturable() const { return {}; }
  // Notes about the file for the user, one line each.
  virtual const std::vector<std::string>& notes() const = 0;
  virtual void train(bool training) = 0;
  // Runs forward; throws UserError(65) with the shapes when the model rejects its inputs.
  virtual ForwardResult forward(const std::vector<at::Tensor>& inputs) = 0;
  // For a diagnosis; null: no observer.
  virtual void set_unit_observer(UnitObserver* observer) = 0;
};

// `unit_names`: class names or module paths; empty: repeated blocks and large leaf modules.
std::unique_ptr<ModelSource> load_script_model(const std::string& path, const std::vector<std::string>& unit_names,
                                               const GraphPassOptions& passes = {});

// Writes the model's code and buffers with all parameters emptied, a few kB: a checkpoint's part of the model file.
void write_model_skeleton(const std::string& model_path, const std::string& out_path);

}  // namespace dslaunch::runtime
