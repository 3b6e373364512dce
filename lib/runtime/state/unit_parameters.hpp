// Where the model asks for a unit's parameters and hands over their gradients: the one seam between the model source
// and whatever shards it. Called on the thread that runs the model (acquire, release) and on autograd's
// (take_gradients).
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace dslaunch::runtime {

class UnitParameters {
 public:
  virtual ~UnitParameters() = default;
  // The unit's parameters in the order of UnitInfo::parameters, valid until release() and, for what autograd saved of
  // them, until the take_gradients() of this call.
  virtual std::vector<at::Tensor> acquire(int unit) = 0;
  virtual void release(int unit) = 0;
  // The gradients of one call of the unit, same order; an undefined tensor is a parameter that the call did not use.
  virtual void take_gradients(int unit, std::vector<at::Tensor> gradients) = 0;
};

}  // namespace dslaunch::runtime
