// The parameters of a model as plain data: their names, sizes and units. Everything that shards, saves or counts
// parameters works on this table, not on the model.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/state/local_slice.hpp"

namespace dslaunch::runtime {

struct ParameterInfo {
  std::string name;  // as in the module tree, e.g. "blocks.0.fc.weight"; tied ones carry the first name
  std::vector<int64_t> shape;
  int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;  // the model's own, before any cast
  bool trainable = true;
  int unit = 0;                      // index into the units; 0 is the root unit
  std::vector<std::string> aliases;  // the other names of a tied parameter
  // `shape` and `numel` are of this part of the parameter, which is what this rank holds; empty: all of it.
  std::optional<LocalSlice> slice = {};

  std::vector<int64_t> whole_shape() const {
    std::vector<int64_t> out = shape;
    if (slice) out.at(static_cast<size_t>(slice->dim)) = slice->whole;
    return out;
  }
  int64_t whole_numel() const { return slice && slice->length() > 0 ? numel / slice->length() * slice->whole : numel; }
};

struct UnitInfo {
  std::string name;             // module path; "" is the root
  std::vector<int> parameters;  // trainable ones, indices into the table, in order of use
  // The other parameters that may be sharded as well: frozen, of fp32 or a shorter floating type, not empty.
  std::vector<int> frozen = {};
};

struct ParameterTable {
  std::vector<ParameterInfo> parameters;
  std::vector<UnitInfo> units;  // [0] is the root unit, the others in order of use

  // Of the whole parameters.
  int64_t num_trainable() const;
  int64_t num_elements() const;
};

// "weight" or "….weight": for a 1-D parameter, the weight of a normalization.
bool is_weight(const std::string& name);

}  // namespace dslaunch::runtime
