// Which units of a TorchScript model are recomputed, and which state the recomputation of each must restore. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/recomputation/recomputation.hpp"

namespace dslaunch::runtime::model::recomputation {

struct RecomputationCandidate {
  int unit = 0;
  std::string path;  // of its module
  torch::jit::Module module;
};

struct RecomputationPlan {
  std::map<int, RecomputedUnit> units;  // by unit
  std::string summary;                  // one line for the user
};

// `candidates`: in order of use, intercepted or not; before passes that need the device fuse their operators.
// `calls_autograd`: the whole model's forward computes gradients itself.
// `number_checkpoints`: of segments, at least 1; their sizes differ by at most one unit. Empty: segments of
// `units_per_segment` units, the last one with the rest.
RecomputationPlan plan_recomputation(const std::vector<RecomputationCandidate>& candidates,
                                     const torch::jit::Module& model, bool calls_autograd,
                                     std::optional<int64_t> number_checkpoints, int64_t units_per_segment);

}  // namespace dslaunch::runtime::model::recomputation
