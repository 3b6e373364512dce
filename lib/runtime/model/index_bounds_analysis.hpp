// What the model's graph says before it runs: which integer inputs index a table of known size, and how many classes
// its outputs tell apart. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

#include "runtime/model/model_source.hpp"

namespace dslaunch::runtime {

struct IndexUse {
  std::vector<IndexLimit> limits;
  std::optional<int64_t> num_output_classes;  // last dim of forward's first output where a linear layer makes it
};
IndexUse scan_index_use(const torch::jit::Module& model);

}  // namespace dslaunch::runtime
