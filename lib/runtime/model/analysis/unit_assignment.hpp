// Which unit a parameter belongs to, and which slots hold a unit's parameters: decided from the graphs before any of
// them runs.
//
// A parameter belongs to a unit if all its slots are in that unit and no code outside reads them; else to the root.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::analysis {

struct UnitModule {
  units::BoundUnit unit;
  torch::jit::Module module;
  bool is_block = true;  // false: a single large layer
};

struct UnitAssignment {
  units::BoundUnit root;
  std::vector<UnitModule> others;  // those with parameters, in order of use
  // False: modules are called through an interface or on another thread, so the root is the only unit.
  bool is_analyzable = true;
};

// Fills the table's units and the unit of each of its parameters. `locations`: by parameter.
UnitAssignment assign_units(const torch::jit::Module& model, const std::vector<graph::UnitCandidate>& candidates,
                            const units::BoundUnit::Locations& locations, ParameterTable& table);

}  // namespace dslaunch::runtime::model::analysis
