// Which unit a parameter belongs to, and where a unit's parameters go: decided from what the graphs say before any of
// them runs.
//
// A parameter belongs to a unit when all its places lie in that unit and nothing outside reads them; else to the root.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "runtime/model/bound_unit.hpp"
#include "runtime/model/unit_discovery.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime {

struct UnitModule {
  BoundUnit unit;
  torch::jit::Module module;
  bool is_block = true;  // false: a single large layer
};

struct UnitAssignment {
  BoundUnit root;
  std::vector<UnitModule> others;  // those with parameters, in order of use
  // False: modules are called through an interface or on another thread, so there are no units but the root.
  bool understood = true;
};

// Fills the table's units and the unit of each of its parameters. `places`: by parameter.
UnitAssignment assign_units(const torch::jit::Module& model, const std::vector<UnitCandidate>& candidates,
                            const BoundUnit::Places& places, ParameterTable& table);

}  // namespace dslaunch::runtime
