// The tensors that a model holds itself, from call to call: buffers and frozen parameters. (Units receive trained
// parameters, and sharded frozen ones, when they run.) On the thread that runs the model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model {

// Tied tensors of a model file: they are pickled separately and share their storage.

inline bool has_bytes(const at::Tensor& value) {
  return value.defined() && value.layout() == at::kStrided && value.has_storage() && value.numel() > 0;
}

// Identity of tensors with bytes: tensors with equal identities are the same tensor, as long as none of them is freed.
using TensorIdentity = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>, at::ScalarType>;

inline TensorIdentity identity_of(const at::Tensor& value) {
  return {value.data_ptr(), value.sizes().vec(), value.strides().vec(), value.scalar_type()};
}

// From a tensor's name and its own dtype to the dtype in which this run computes with it.
using DtypeOf = std::function<at::ScalarType(const std::string& name, at::ScalarType own)>;

// A tensor by name, and every slot that holds it (several when it is tied).
struct HeldTensor {
  std::string name;
  std::vector<ParameterLocation> locations;
};

class ModelTensors {
 public:
  // `mutable_parameters`: frozen parameters that forward itself writes to, such as the target network of BYOL:
  // effectively buffers. `parameters`: the slots of the other parameters, by parameter. `fp32_buffers`: names of
  // buffers that stay fp32 in a half-precision run.
  ModelTensors(std::vector<HeldTensor> buffers, std::vector<HeldTensor> mutable_parameters,
               std::vector<std::vector<ParameterLocation>> parameters, std::set<std::string> fp32_buffers);

  // Buffers, then mutable parameters; their current values.
  std::vector<std::pair<std::string, at::Tensor>> buffers() const;
  void set_frozen_value(int parameter, const at::Tensor& value);
  at::Tensor frozen_value(int parameter) const;  // undefined: not on this rank now

  // Moves buffers to the device and converts them.
  void buffers_to_device(at::Device device, const DtypeOf& dtype_of);

 private:
  // fixed after construction
  std::vector<HeldTensor> buffers_, mutable_parameters_;
  std::vector<std::vector<ParameterLocation>> parameters_;
  std::set<std::string> fp32_buffers_;
};

}  // namespace dslaunch::runtime::model
