// Which unit a parameter belongs to, and which slots hold a unit's parameters: decided from the graphs before any of
// them runs.
//
// A parameter belongs to a unit if all its slots are in that unit and no code outside reads them; else to the root.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/torchscript/units/bound_unit.hpp"
#include "runtime/state/parameter_location.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model::analysis {

// Static analysis of the model's graphs: which units are called and in which order, and which parameters of a unit are
// read from outside it (those belong to the root). Pure.

struct UnitUse {
  std::vector<ObjectKey> call_order;  // units whose forward is called, by first call
  // Slots inside a unit that are read by code outside it.
  std::set<SlotKey> read_outside;
  bool is_analyzable = true;  // false: there is a call through an interface, so no module may be made a unit
};

// `unit_of`: every object inside a candidate (itself included) -> the candidate.
UnitUse scan_unit_use(const torch::jit::Module& model, const std::unordered_map<ObjectKey, ObjectKey>& unit_of);

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
