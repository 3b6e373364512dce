// Static analysis of the model's graphs: which units are called and in which order, and which parameters of a unit are
// read from outside it (those belong to the root). Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <unordered_map>
#include <vector>

#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::analysis {

struct UnitUse {
  std::vector<ObjectKey> call_order;  // units whose forward is called, by first call
  // Slots inside a unit that are read by code outside it.
  std::set<SlotKey> read_outside;
  bool is_analyzable = true;  // false: there is a call through an interface, so no module may be made a unit
};

// `unit_of`: every object inside a candidate (itself included) -> the candidate.
UnitUse scan_unit_use(const torch::jit::Module& model, const std::unordered_map<ObjectKey, ObjectKey>& unit_of);

}  // namespace dslaunch::runtime::model::analysis
