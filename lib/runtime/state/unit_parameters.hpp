// Where the model asks for a unit's parameters and hands over their gradients: the one seam between the model source
// and whatever shards it. Called on the thread that runs the model (acquire, release) and on autograd's
// (prepare_backward, take_gradients, and acquire for the second pass of a recomputed call).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::runtime {

enum class UnitCall : uint8_t {
  kInference,  // no backward follows
  kTraining,   // prepare_backward() and take_gradients() follow, once each
  kRecompute,  // the second pass of a recomputed kTraining call, in its backward: instead of prepare_backward()
};

// A unit's parameters in their own shapes.
struct UnitValues {
  std::vector<at::Tensor> parameters;  // in the order of UnitInfo::parameters
  // In the order of UnitInfo::frozen; an undefined one rests in the model itself. Empty: all of them do.
  std::vector<at::Tensor> frozen = {};
};

class UnitParameters {
 public:
  virtual ~UnitParameters() = default;
  // Valid until release() (kRecompute: until take_gradients()). What autograd saved of them is valid again from
  // prepare_backward() until take_gradients().
  virtual UnitValues acquire(int unit, UnitCall call) = 0;
  // Not called after kRecompute, nor when an output of the call is itself a view of a parameter: the unit then stays.
  virtual void release(int unit) = 0;
  // The backward of a call is about to start.
  virtual void prepare_backward(int unit) = 0;
  // The gradients of one call of the unit, in the order of UnitInfo::parameters; an undefined tensor is a parameter
  // that the call did not use. Backward is through with the call. (A unit of frozen parameters gives an empty list.)
  virtual void take_gradients(int unit, std::vector<at::Tensor> gradients) = 0;
};

}  // namespace dslaunch::runtime
