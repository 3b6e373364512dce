#include "runtime/model/fusion/fusion_passes.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "runtime/model/fusion/fused_operator.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;

const c10::Symbol kOffered = c10::Symbol::attr("offered_outputs");

// Whether a GEMM with a weight whose backward is ours (layers/linear.hpp) reads the value as its other factor.
bool is_factor(const Use& use) {
  const int factor = operators::traits(use.user->kind()).gemm.factor;
  return factor >= 0 && static_cast<size_t>(factor) == use.offset && operators::is_ours(use.user->kind());
}

bool only_factors(const Value* value) {
  static const std::set<std::string_view> views{"aten::view", "aten::reshape", "aten::flatten"};
  const auto& uses = value->uses();
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [](const Use& use) {
    const bool is_view = use.offset == 0 && views.count(use.user->kind().toQualString()) > 0;
    return is_view ? only_factors(use.user->output()) : is_factor(use);
  });
}

int offer_outputs(Block* block) {
  int count = 0;
  graph::for_each_node(block, [&](Node* node) {
    if (std::string_view(node->kind().toQualString()) != kFusedRegion) return;
    std::vector<int64_t> offered;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      if (only_factors(node->output(i))) offered.push_back(static_cast<int64_t>(i));
    }
    count += static_cast<int>(offered.size());
    if (!offered.empty()) node->is_(kOffered, std::move(offered));
  });
  return count;
}

}  // namespace

int offer_outputs(const torch::jit::Module& model) {
  int count = 0;
  for (const auto& graph : graph::inline_running_forwards(model)) count += offer_outputs(graph->block());
  return count;
}

std::vector<bool> offered_outputs(const Node* region) {
  std::vector<bool> out(region->outputs().size());
  if (!region->hasAttribute(kOffered)) return out;
  for (const int64_t output : region->is(kOffered)) out[static_cast<size_t>(output)] = true;
  return out;
}

}  // namespace dslaunch::runtime::model::fusion
