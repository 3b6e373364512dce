// A recomputed call between its first forward and its recomputation: the data that the recomputation needs, and how
// both access the unit's parameters.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/recomputation/input_store.hpp"
#include "runtime/model/recomputation/recomputation.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/state/parameter_location.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::model::recomputation {

// State that a unit's forward reads besides arguments and parameters, saved at its first forward and restored for its
// recomputation: random numbers, autocast, and attributes that forward writes (BatchNorm's running values, counters).
class ForwardContext {
 public:
  // Saves the current state. `state`: must outlive this object.
  ForwardContext(const std::vector<ParameterLocation>& state, at::Device device);
  ~ForwardContext();
  ForwardContext(const ForwardContext&) = delete;
  ForwardContext& operator=(const ForwardContext&) = delete;

  // Restores the saved state during its lifetime, then the state that it found. Used once.
  class Restore {
   public:
    explicit Restore(ForwardContext& saved);
    ~Restore();
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;

   private:
    ForwardContext& saved_;
    std::unique_ptr<ForwardContext> current_;
  };

 private:
  struct Autocast;
  enum class Keep { kCopy, kReference };
  ForwardContext(const std::vector<ParameterLocation>& state, at::Device device, Keep keep);
  void apply() const;

  const std::vector<ParameterLocation>& state_;
  at::Device device_;
  at::Tensor random_;
  std::unique_ptr<Autocast> autocast_;
  std::vector<c10::IValue> values_;  // of the state
};

bool is_differentiable(const at::Tensor& tensor);

// The same value with every defined tensor replaced; tuples, lists and dicts are rebuilt, objects stay.
c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change);
torch::jit::Stack map_tensors(const torch::jit::Stack& values,
                              const std::function<at::Tensor(const at::Tensor&)>& change);

// Parameters of other units that this unit uses, set into their slots for one pass.
class ExternalParametersScope {
 public:
  ExternalParametersScope(const units::BoundUnit& unit, const std::vector<at::Tensor>& values)
      : unit_(unit), before_(unit.external_values()) {
    set(values);
  }
  ~ExternalParametersScope() { set(before_); }
  ExternalParametersScope(const ExternalParametersScope&) = delete;
  ExternalParametersScope& operator=(const ExternalParametersScope&) = delete;

 private:
  void set(const std::vector<at::Tensor>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      for (const auto& location : unit_.external[i]) location.set(values[i]);
    }
  }
  const units::BoundUnit& unit_;
  std::vector<at::Tensor> before_;
};

// Whether two tensors that share a storage may have an element in common; exact for tensors of equal strides, such as
// the parts of a chunk().
bool may_overlap(const at::Tensor& one, const at::Tensor& other);

constexpr int64_t kNoOutput = -1;  // of the node: the tensor is passed through, or no gradient can flow to it

// All data that the recomputation of a call needs. The unit has parameters.
struct SavedCall {
  struct Input {
    std::unique_ptr<InputStore::Stored> stored;
    bool requires_grad = false;
    std::shared_ptr<SavedCall> producer = nullptr;  // instead of `stored`: an output of the segment's call before
    int64_t produced_output = kNoOutput;
  };
  // The recomputation, until it is differentiated.
  struct Pass {
    std::vector<at::Tensor> leaves;    // by input
    std::vector<at::Tensor> outputs;   // by output of the node, with their history
    std::vector<at::Tensor> detached;  // the same without history and valid after the unit's release
    std::shared_ptr<units::CallInBackward> in_backward;
  };

  SavedCall(const units::BoundUnit& unit_, const RecomputedUnit& recomputed_, UnitParameters& parameters_,
            UnitBody body_, at::Device device)
      : unit(unit_),
        recomputed(recomputed_),
        parameters(parameters_),
        body(std::move(body_)),
        context(recomputed_.state, device) {}

  const units::BoundUnit& unit;
  const RecomputedUnit& recomputed;
  UnitParameters& parameters;
  UnitBody body;
  ForwardContext context;
  torch::jit::Stack arguments;           // with all tensors removed
  std::vector<Input> inputs;             // those tensors, in order, then the borrowed parameters
  std::vector<int64_t> outputs;          // by tensor of the result: the output of the node
  std::vector<int64_t> changed_outputs;  // by tensor argument: the output, if the argument was changed in place
  std::vector<std::vector<int64_t>> output_sizes;  // by output of the node
  // For outputs that overlap: their version counters and the versions at the first forward. Such outputs have no common
  // history, so an in-place change of one output would be missing from the gradients of the others.
  std::vector<std::pair<c10::VariableVersion, uint32_t>> overlapping;
  std::optional<Pass> pass;  // empty before the recomputation, and after its backward
  bool is_over = false;      // backward has passed through
};

// The outputs of the last call, which the next call of its segment need not save.
struct LastCall {
  struct Output {
    Output(const at::Tensor& tensor_, int64_t output_)
        : tensor(tensor_.getIntrusivePtr()),
          version(tensor_.unsafeGetTensorImpl()->version_counter().current_version()),
          output(output_) {}
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    uint32_t version;
    int64_t output;  // of the node
  };
  std::weak_ptr<SavedCall> call;
  std::vector<Output> outputs;

  // The output that this tensor is, unchanged; kNoOutput: none.
  int64_t find(const at::Tensor& tensor) const;
};

// Throws UserError(65), which says that the unit cannot be recomputed, and what to do.
[[noreturn]] void refuse(const SavedCall& call, const std::string& what);

}  // namespace dslaunch::runtime::model::recomputation
