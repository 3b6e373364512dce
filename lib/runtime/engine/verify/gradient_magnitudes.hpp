// Sums of the absolute values of a step's gradient contributions, for --verify: the rounding error of a sum depends on
// the size of its terms, not on the size of the result. Wraps the model's parameters; one thread at a time.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/state/parameter_table.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::engine::verify {

class GradientMagnitudes : public UnitParameters {
 public:
  // Both must outlive this object.
  GradientMagnitudes(const ParameterTable& table, UnitParameters& parameters);

  void begin_step();
  // By parameter: the sum of |gradient| over the calls since begin_step(), 1-D in fp32; undefined without a gradient.
  const at::Tensor& of(int parameter) const { return sums_.at(static_cast<size_t>(parameter)); }

  UnitValues acquire(int unit, UnitCall call) override { return parameters_.acquire(unit, call); }
  void release(int unit) override { parameters_.release(unit); }
  void prepare_backward(int unit) override { parameters_.prepare_backward(unit); }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override;

 private:
  const ParameterTable& table_;
  UnitParameters& parameters_;
  std::vector<at::Tensor> sums_;
};

}  // namespace dslaunch::runtime::engine::verify
