// From the slots of a TorchScript module to the table of its parameters.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/model/interface/model_tensors.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::torchscript {

struct ParameterBinding {
  ParameterTable table;                        // without units
  std::vector<at::Tensor> values;              // by parameter, mapped
  units::BoundUnit::Locations locations;       // by parameter
  std::vector<HeldTensor> mutable_parameters;  // not in the table
};

// `mutable_parameters`: names. Throws UserError(65) for parameters that cannot be trained (parameter_slots.hpp).
ParameterBinding bind_parameters(const torch::jit::Module& module, const std::set<std::string>& mutable_parameters);

// In module tree order.
std::vector<HeldTensor> find_buffers(const torch::jit::Module& module);

}  // namespace dslaunch::runtime::model::torchscript
