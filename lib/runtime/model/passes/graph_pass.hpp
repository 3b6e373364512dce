// A pass over a model's graphs as a row of a table (script/graph_passes.cpp), and what runs such a table. On the thread
// that loads the model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/model/graph/pattern.hpp"
#include "runtime/model/graph_pass_options.hpp"

namespace dslaunch::runtime::model::constants {
class KnownMasks;
}

namespace dslaunch::runtime::model::passes {

// What a pass works on, and what it leaves.
struct PassContext {
  const torch::jit::Module& module;
  GraphPassOptions options = {};
  at::Device device = at::kCPU;                       // for kDevice
  at::ScalarType smallest_dtype = at::kFloat;         // for kDevice: of the run's parameters
  std::shared_ptr<constants::KnownMasks> masks = {};  // for kDevice: made by the first pass that needs them
  // results
  std::set<std::string> fp32_buffers = {};  // names; they stay fp32 in a half-precision run
  std::vector<std::string> notes = {};      // for the user
};

// What a pass needs, which says when it runs.
enum class PassNeeds {
  kGraphs,  // the graphs of all functions, not inlined; before units are intercepted, which copies their graphs
  kDevice,  // the device and the dtypes of the run
};

enum class PassTarget { kModel, kModelAndLoss };  // kModelAndLoss: also the loss from a file

// Changes one node, and may replace it, where the pattern matches.
struct NodeRewrite {
  graph::Pattern pattern;
  void (*rewrite)(torch::jit::Node* node) = nullptr;
};
using ModuleRewrite = void (*)(PassContext& context);

struct GraphPass {
  std::string_view name;
  bool config::Kernels::*key = nullptr;  // the config key that switches the pass off; null: it always runs
  PassNeeds needs = PassNeeds::kGraphs;
  PassTarget target = PassTarget::kModel;
  std::variant<NodeRewrite, ModuleRewrite> rewrite;
};

// Runs the rows with these needs, in their order. A row whose target is kModel does not run on a loss.
void run_passes(const std::vector<GraphPass>& passes, PassNeeds needs, PassTarget target, PassContext& context);

}  // namespace dslaunch::runtime::model::passes
