#include "runtime/state/state_arrays.hpp"

#include <ATen/ATen.h>

namespace dslaunch::runtime {

StateArrays arrays_of_parameter(const at::Tensor& parameter, at::Device device) {
  StateArrays out;
  if (parameter.scalar_type() == at::kFloat && parameter.device() == device) {
    out.master = parameter;
  } else {
    out.master = at::zeros(parameter.sizes(), parameter.options().device(device).dtype(at::kFloat));
    out.low_precision = parameter;
  }
  return out;
}

StateArrays arrays_without_master(const at::Tensor& parameter) {
  StateArrays out;
  (parameter.scalar_type() == at::kFloat ? out.master : out.low_precision) = parameter;
  return out;
}

void round_to_parameters(const StateArrays& arrays) {
  if (!arrays.has_copy()) return;
  if (arrays.stored_parameter) {
    arrays.stored_parameter->write(0, arrays.master);
  } else {
    arrays.low_precision.copy_(arrays.master);
  }
}

StateArrays narrow(const StateArrays& arrays, int64_t offset, int64_t count) {
  StateArrays out = arrays;
  out.gradient_squares = at::Tensor();
  out.stored = nullptr;
  out.stored_gradient.reset();
  if (out.stored_parameter) out.stored_parameter->begin += offset;
  for (at::Tensor* array : {&out.master, &out.gradient, &out.low_precision}) {
    if (array->defined()) *array = array->narrow(0, offset, count);
  }
  for (at::Tensor& moment : out.moments) {
    if (moment.defined()) moment = moment.narrow(0, offset, count);
  }
  return out;
}

}  // namespace dslaunch::runtime
