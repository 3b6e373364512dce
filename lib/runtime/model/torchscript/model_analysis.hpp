// What the graphs of a model's forward say about it before it runs.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/model/analysis/capture_obstacles.hpp"
#include "runtime/model/analysis/index_bounds_analysis.hpp"

namespace dslaunch::runtime::model::torchscript {

struct ModelAnalysis {
  analysis::IndexUse index_use;
  analysis::HostState host_state;            // that forward changes
  std::set<std::string> mutable_parameters;  // names of frozen parameters that forward itself writes to
  bool calls_autograd = false;               // forward computes gradients itself
  std::vector<std::string> notes;            // for the user
};

// `model`: as the file at `path` has it, before a pass changes its graphs. Throws UserError(65) when forward writes to
// a trained parameter.
ModelAnalysis analyze_model(const torch::jit::Module& model, const std::string& path);

}  // namespace dslaunch::runtime::model::torchscript
