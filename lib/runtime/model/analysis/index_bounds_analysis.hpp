// Static analysis of the model's graph: which integer inputs index a table of known size, and how many classes its
// outputs distinguish. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

#include "runtime/model/model_facts.hpp"

namespace dslaunch::runtime::model::analysis {

struct IndexUse {
  std::vector<IndexLimit> limits;
  std::optional<int64_t> num_output_classes;  // last dim of forward's first output, if a linear layer produces it
};
IndexUse scan_index_use(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::analysis
