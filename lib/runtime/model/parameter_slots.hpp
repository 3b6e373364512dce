// All places of a TorchScript module that hold a parameter, tied ones found by their memory.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/state/parameter_place.hpp"

namespace dslaunch::runtime {

// One parameter: its first name and value, its other names, and every place.
struct HeldParameter {
  std::string name;
  at::Tensor value;
  std::vector<std::string> aliases;
  std::vector<ParameterPlace> places;
};

// In the order of the module tree. UserError(65) for what cannot be trained as it stands: parameters that overlap
// without being the same, a buffer or another attribute that shares a parameter's memory, complex numbers.
std::vector<HeldParameter> find_parameters(const torch::jit::Module& model);

// Attributes of `module` and of those in it that can hold tensors, without those in `parameters`: buffers, and what
// forward keeps.
std::vector<ParameterPlace> find_tensor_state(const torch::jit::Module& module, const std::set<SlotKey>& parameters);

// "blocks.0" + "weight"
std::string join_path(const std::string& parent, const std::string& child);

}  // namespace dslaunch::runtime
