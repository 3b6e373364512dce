// How the model requests a unit's parameters and hands over their gradients: the only interface between the model
// source and the code that shards it. Called on the thread that runs the model (acquire, release) and on autograd's
// thread (prepare_backward, gradient_destination, take_gradients, and acquire for the recomputation of a call); for
// deferred gradients on the engine's thread (the last two).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/state/deferred_gradients.hpp"
#include "runtime/state/gradient_destination.hpp"

namespace dslaunch::runtime {

enum class UnitCall : uint8_t {
  kInference,  // no backward follows
  kTraining,   // prepare_backward() and take_gradients() follow, once each
  kRecompute,  // recomputation of a kTraining call, in its backward: instead of prepare_backward()
};

// A unit's parameters in their own shapes.
struct UnitValues {
  std::vector<at::Tensor> parameters;  // in the order of UnitInfo::parameters
  // In the order of UnitInfo::frozen; an undefined one is held by the model itself. Empty: the model holds all of them.
  std::vector<at::Tensor> frozen = {};
};

class UnitParameters {
 public:
  virtual ~UnitParameters() = default;
  // Valid until release() (kRecompute: until take_gradients()). Tensors that autograd saved from them are valid again
  // from prepare_backward() until take_gradients().
  virtual UnitValues acquire(int unit, UnitCall call) = 0;
  // Not called after kRecompute, nor when an output of the call is itself a view of a parameter: the unit then stays
  // gathered.
  virtual void release(int unit) = 0;
  // The backward of a call is about to start.
  virtual void prepare_backward(int unit) = 0;
  // Where a part of the gradient of the i-th parameter in UnitInfo::parameters is to be written: a product of matrices
  // of type `factors`, which the caller enqueues on the current stream before anything else. The unit's next
  // take_gradients() brings what is to be added to such parts, undefined: nothing. Empty: all of the gradient is passed
  // there.
  virtual std::optional<GradientDestination> gradient_destination([[maybe_unused]] int unit,
                                                                  [[maybe_unused]] size_t parameter,
                                                                  [[maybe_unused]] at::ScalarType factors) {
    return std::nullopt;
  }
  // The gradients of one call of the unit, in the order of UnitInfo::parameters; an undefined tensor means that the
  // call did not use the parameter, or wrote its gradient. Backward of the call has finished. (A unit of frozen
  // parameters passes an empty list.)
  virtual void take_gradients(int unit, std::vector<at::Tensor> gradients) = 0;
  // Where a backward may leave weight gradients while it is open; take_gradients() of a call that leaves some comes
  // with them. Null: all are computed in backward.
  virtual DeferredGradients* deferred_gradients() { return nullptr; }
};

}  // namespace dslaunch::runtime
