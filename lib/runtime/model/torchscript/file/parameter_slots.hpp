// Finds all slots of a TorchScript module that hold a parameter; tied ones are recognised by their memory.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::file {

// One parameter: its first name and value, its other names, and every slot that holds it.
struct HeldParameter {
  std::string name;
  at::Tensor value;
  std::vector<std::string> aliases;
  std::vector<ParameterLocation> locations;
};

// In module tree order. Throws UserError(65) for parameters that cannot be trained in this form: parameters that
// overlap without being the same, a buffer or another attribute that shares a parameter's memory, complex numbers.
std::vector<HeldParameter> find_parameters(const torch::jit::Module& model);

// Attributes of `module` and its submodules that can hold tensors, except those in `parameters`: buffers, and values
// that forward keeps.
std::vector<ParameterLocation> find_tensor_state(const torch::jit::Module& module, const std::set<SlotKey>& parameters);

// "blocks.0" + "weight"
std::string join_path(const std::string& parent, const std::string& child);

}  // namespace dslaunch::runtime::model::file
