// A model as the runtime sees it: parameters, units, buffers and one call. TorchScript is one source; its types stay in
// this room so that another can stand beside it. One thread uses a model at a time.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/graph_pass_options.hpp"
#include "runtime/model/recomputation_options.hpp"
#include "runtime/state/index_range.hpp"
#include "runtime/state/module_info.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

// What forward returned: a tensor, or the tensors of a tuple or dict.
struct ForwardResult {
  at::Tensor first;                // the tensor itself, a tuple's first element, a dict's "loss" (else its first entry)
  std::vector<at::Tensor> others;  // the rest in order
  at::Tensor named_loss;           // a dict's "loss" or a NamedTuple's field of that name; undefined: nothing bears it
  bool is_dict = false;
};

// A part of an integer input that must stay below a bound: ids of an embedding, class labels.
struct IndexLimit {
  size_t input = 0;                // index among forward's arguments (without self)
  int64_t bound = 0;               // 0 <= id < bound
  std::optional<int64_t> ignored;  // of labels: the loss's ignore_index, which they may be as well
  IndexRange range;                // where in the input
};

// What forward takes, without self.
struct InputSignature {
  std::vector<std::string> names;
  size_t num_required = 0;  // those without a default value
};

// Sees what goes into the calls of units and what comes out of them (tensors inside tuples, lists and dicts one by
// one), nested as the calls are; unit 0 is the whole forward. On the thread that runs the model.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void entered(int unit, const std::vector<at::Tensor>& inputs) = 0;
  virtual void left(int unit, const std::vector<at::Tensor>& outputs) = 0;
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual const ParameterTable& table() const = 0;
  virtual const InputSignature& inputs() const = 0;
  virtual std::vector<IndexLimit> index_limits() const = 0;
  // Number of classes of forward's first output, where a loss outside the model meets labels; empty: not known.
  virtual std::optional<int64_t> num_output_classes() const = 0;

  // The value in the file, on the host, not to be written; for an empty parameter a tensor with all strides 0.
  virtual at::Tensor initial_value(int parameter) const = 0;
  virtual bool is_empty(int parameter) const = 0;
  virtual std::vector<std::pair<std::string, at::Tensor>> buffers() const = 0;
  // The tree of modules, for reports; empty: not known.
  virtual std::vector<ModuleInfo> modules() const { return {}; }

  // From a tensor's name and its own type to the type in which it is computed with.
  using DtypeOf = std::function<at::ScalarType(const std::string& name, at::ScalarType own)>;
  // Moves buffers, constants and frozen parameters to the device, buffers and parameters in the types wanted. Frozen
  // parameters that are sharded (by parameter) go nowhere: the units get them when they run.
  virtual void place(at::Device device, const DtypeOf& dtype_of, const std::vector<bool>& is_sharded) = 0;
  virtual void set_frozen_value(int parameter, const at::Tensor& value) = 0;
  virtual at::Tensor frozen_value(int parameter) const = 0;  // undefined: not here now
  // Who gives out parameters and takes gradients; must outlive all calls.
  virtual void set_unit_parameters(UnitParameters* parameters) = 0;
  // From now on blocks are recomputed in backward instead of keeping what it needs; says in one line which.
  virtual std::string set_recomputation(const RecomputationOptions& options) = 0;
  // With RecomputationOptions::profile: what it took since it was last asked, as one line; else empty.
  virtual std::string take_recomputation_profile() = 0;
  // Why a device must not record a run of it and replay that; empty: nothing is known (recording.hpp).
  virtual std::string recording_obstacle() const { return {}; }
  // What the user should know about the file, a line each.
  virtual const std::vector<std::string>& notes() const = 0;
  virtual void train(bool training) = 0;
  // Runs forward; throws UserError(65) with the shapes when the model refuses its inputs.
  virtual ForwardResult forward(const std::vector<at::Tensor>& inputs) = 0;
  // For a diagnosis; null: nobody looks.
  virtual void set_unit_observer(UnitObserver* observer) = 0;
};

// `unit_names`: class names or module paths; empty: repeated blocks and large leaf modules.
std::unique_ptr<ModelSource> load_script_model(const std::string& path, const std::vector<std::string>& unit_names,
                                               const GraphPassOptions& passes = {});

// The model's code and buffers with all parameters emptied, a few kB: what a checkpoint keeps of the model file.
void write_model_skeleton(const std::string& model_path, const std::string& out_path);

}  // namespace dslaunch::runtime
