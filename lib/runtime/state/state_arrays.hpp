// The values of a run of optimizer state, where they are right now: on a device or, offloaded, on the host or in files.
// Where the run belongs is its StateSpan (state_span.hpp). Plain data; the tensors are shared, not copied.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/state/state_span.hpp"
#include "runtime/state/stored_arrays.hpp"
#include "runtime/state/stored_parameter.hpp"

namespace dslaunch::runtime {

// Gradients of a span that rest in files.
struct StoredGradient {
  int area = 0;  // of StoredArrays
  at::ScalarType dtype = at::kFloat;
  bool is_zero = false;  // nothing was stored
};

// bf16 and fp16: as reductions deliver them, where nothing is added to that or `grad_accum_dtype` is such a type.
constexpr bool is_gradient_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

// 1-D contiguous tensors of one length, on one device unless they are offloaded.
struct StateArrays {
  at::Tensor master;  // fp32. Undefined in an evaluation where parameters are not fp32, and for what is stored
  // The sum over the data ranks, before averaging and clipping, of a type that is_gradient_type. Undefined outside the
  // part of a step that has it.
  at::Tensor gradient;
  at::Tensor gradient_squares;  // offloaded from a device: 0-dim fp64 there, the sum of the gradient's squares
  // The parameters themselves (bf16 or fp16): the master, rounded. Undefined where parameters are fp32: there the
  // master is the parameter, in the same memory. Offloaded, an fp32 parameter is a copy of its master.
  at::Tensor low_precision;
  std::vector<at::Tensor> moments;  // fp32, in the order of the optimizer's moment names
  bool is_offloaded = false;        // master, moments and gradient rest on the host, apart from the parameters
  // Offloaded to files: master and moments, which are not defined above, and the gradient where it is not.
  std::shared_ptr<StoredArrays> stored;
  std::optional<StoredGradient> stored_gradient;
  // The parameters rest in a file: low_precision is undefined, and the master is not the parameter.
  std::optional<StoredParameter> stored_parameter;

  bool master_is_parameter() const { return !low_precision.defined() && !stored_parameter; }
  // Whether there is a master beside the parameter.
  bool has_copy() const { return master.defined() && !master_is_parameter(); }
  // The parameters as they rest in memory, in their compute dtype; undefined: in a file.
  const at::Tensor& parameter() const { return master_is_parameter() ? master : low_precision; }
  // Their compute dtype, where there are any.
  at::ScalarType parameter_dtype() const {
    if (stored_parameter) return stored_parameter->dtype;
    return parameter().scalar_type();
  }
};

// State that this rank owns.
struct SpanState {
  StateSpan span;
  StateArrays arrays;
};

// The arrays of parameters without gradient and moments: an fp32 parameter on `device` is its own master, another one
// gets a master of zeros there.
StateArrays arrays_of_parameter(const at::Tensor& parameter, at::Device device);
// The same for an evaluation: only an fp32 parameter has a master, itself.
StateArrays arrays_without_master(const at::Tensor& parameter);

// Writes the master, rounded, to the parameters, where both are there.
void round_to_parameters(const StateArrays& arrays);

// Views of elements [offset, offset + count) of every array that is defined; stored masters, moments and gradients stay
// behind.
StateArrays narrow(const StateArrays& arrays, int64_t offset, int64_t count);

}  // namespace dslaunch::runtime
