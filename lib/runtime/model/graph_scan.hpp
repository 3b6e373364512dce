// What the model's graphs say before they run: which units are called and in which order, which parameters of a unit
// are read from outside it (those belong to the root), which integer inputs index a table of known size. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/model/model_source.hpp"
#include "runtime/model/parameter_place.hpp"

namespace dslaunch::runtime {

struct UnitUse {
  std::vector<ObjectKey> call_order;  // units whose forward is called, by first call
  // Slots inside a unit that code outside it reads.
  std::set<SlotKey> read_outside;
  bool understood = true;  // false: a call through an interface; no module may be taken for a unit
};

// `unit_of`: every object inside a candidate (itself included) -> the candidate.
UnitUse scan_unit_use(const torch::jit::Module& model, const std::unordered_map<ObjectKey, ObjectKey>& unit_of);

struct IndexUse {
  std::vector<IndexLimit> limits;
  std::optional<int64_t> num_output_classes;  // last dim of forward's first output where a linear layer makes it
};
IndexUse scan_index_use(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
