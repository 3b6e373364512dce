// Which units of a TorchScript model are recomputed, and what each one's second pass must put back. Pure, on a reading
// of the model that never runs.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/recomputation.hpp"

namespace dslaunch::runtime {

struct RecomputationCandidate {
  int unit = 0;
  std::string path;  // of its module
  torch::jit::Module module;
};

struct RecomputationPlan {
  std::map<int, RecomputedUnit> units;  // by unit
  std::string summary;                  // one line for the user
};

// `candidates`: in order of use. `scratch`: a second reading of `model`'s file.
RecomputationPlan plan_recomputation(const std::vector<RecomputationCandidate>& candidates,
                                     const torch::jit::Module& model, const torch::jit::Module& scratch,
                                     std::optional<int64_t> number_checkpoints);

}  // namespace dslaunch::runtime
