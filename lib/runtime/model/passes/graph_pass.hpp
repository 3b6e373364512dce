// A pass over a model's graphs as a row of a table (torchscript/graph_passes.cpp), and what runs such a table. On the
// thread that loads the model.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/model/graph/pattern.hpp"
#include "runtime/model/interface/graph_pass_options.hpp"

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
  std::string fp8 = {};                     // for the user: which layers compute in fp8; empty: none
};

// What a pass needs, which says when it runs.
enum class PassNeeds {
  kGraphs,  // the graphs of all functions, not inlined; before units are intercepted, which copies their graphs
  kDevice,  // the device and the dtypes of the run
};

// What passes leave for each other in a graph, and what they need to find there.
enum class Form : unsigned {
  kAsInFile = 1 << 0,            // nothing has changed since the file was read
  kPlainGemms = 1 << 1,          // PyTorch's linear and addmm
  kPlainOperators = 1 << 2,      // PyTorch's elementwise operators, norms, attention: no region contains them
  kInlinedLosses = 1 << 3,       // cross_entropy_loss beside the casts before its call
  kOwnLosses = 1 << 4,           // dslaunch::cross_entropy
  kOwnGemms = 1 << 5,            // dslaunch::linear and its like
  kPlacedConstants = 1 << 6,     // on the run's device
  kFittedConstants = 1 << 7,     // within the run's dtypes
  kNumbers = 1 << 8,             // constants that stand for numbers are numbers
  kKeptConstants = 1 << 9,       // what depends on sizes only is an operator of its own
  kRegions = 1 << 10,            // dslaunch::fused_region
  kCutGemms = 1 << 11,           // GEMMs with the cut of their outputs
  kResidualGradients = 1 << 12,  // norms that add the gradient of what goes past them
};

// A set of forms.
struct Forms {
  unsigned bits = 0;
  constexpr Forms() = default;
  constexpr Forms(Form form) : bits(static_cast<unsigned>(form)) {}
  constexpr bool has(Form form) const { return (bits & static_cast<unsigned>(form)) != 0; }
  friend constexpr Forms operator|(Forms a, Forms b) {
    a.bits |= b.bits;
    return a;
  }
};
constexpr Forms operator|(Form a, Form b) {
  return Forms(a) | Forms(b);
}

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
  Forms reads, makes, ends;  // kAsInFile ends with the first pass
  std::variant<NodeRewrite, ModuleRewrite> rewrite;
};

// Why the rows cannot run in this order: a pass reads a form that no pass before it makes, or that a pass has ended,
// or needs what comes earlier than what another before it needs. Empty: they can. A pass that is switched off counts.
std::string fault_of_order(const std::vector<GraphPass>& passes);

// Runs the rows with these needs, in their order, of which fault_of_order() has found none. A row whose target is
// kModel does not run on a loss.
void run_passes(const std::vector<GraphPass>& passes, PassNeeds needs, PassTarget target, PassContext& context);

}  // namespace dslaunch::runtime::model::passes
