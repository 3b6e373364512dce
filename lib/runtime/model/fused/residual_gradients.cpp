#include "runtime/model/fused/residual_gradients.hpp"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/model/analysis/inlined_forwards.hpp"
#include "runtime/model/analysis/written_values.hpp"
#include "runtime/model/fused/operator_replacement.hpp"

namespace dslaunch::runtime::model::fused {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;

// Their results never share memory with an argument.
bool makes_new_tensor(const Node* node) {
  static const std::set<std::string_view> kinds{"aten::add", "aten::sub",  "aten::mul",        "aten::div",
                                                "aten::pow", "aten::mean", "aten::layer_norm", "dslaunch::layer_norm"};
  return kinds.count(node->kind().toQualString()) > 0;
}

// A group of operators of ours, in a subgraph of the same inputs.
const Graph* group_in(const Node* node) {
  const bool is_ours = std::string_view(node->kind().toQualString()).starts_with("dslaunch::");
  return is_ours && node->hasAttribute(c10::attr::Subgraph) ? node->g(c10::attr::Subgraph).get() : nullptr;
}

bool only_reads(const Use& use) {
  const Graph* group = group_in(use.user);
  if (group == nullptr) return makes_new_tensor(use.user);
  const auto& uses = group->inputs()[use.offset]->uses();
  return std::all_of(uses.begin(), uses.end(), [](const Use& inner) { return makes_new_tensor(inner.user); });
}

void collect(Block* block, std::vector<Node*>& norms) {
  for (Node* node : block->nodes()) {
    if (std::string_view(node->kind().toQualString()) == kLayerNormOperator) norms.push_back(node);
    for (Block* inner : node->blocks()) collect(inner, norms);
  }
}

// Where the node's results may be read.
bool is_in_scope(const Node* user, const Node* node) {
  for (const Block* block = user->owningBlock(); block != nullptr;) {
    if (block == node->owningBlock()) return user->isAfter(node);
    const Node* owner = block->owningNode();
    block = owner == nullptr ? nullptr : owner->owningBlock();
  }
  return false;
}

bool hand_input_on(Node* norm, const analysis::WrittenValues& written) {
  Value* input = norm->input(0);
  std::vector<Use> later;
  for (const Use& use : input->uses()) {
    if (use.user != norm && is_in_scope(use.user, norm) && only_reads(use)) later.push_back(use);
  }
  if (later.empty() || written.contains(input)) return false;
  Node* fused = norm->owningGraph()->create(c10::Symbol::fromQualString(kLayerNormAndInputOperator), norm->inputs(), 2);
  fused->setSourceRange(norm->sourceRange());
  fused->output(0)->copyMetadata(norm->output());
  fused->output(1)->setType(input->type());
  fused->insertBefore(norm);
  norm->output()->replaceAllUsesWith(fused->output(0));
  norm->destroy();
  for (const Use& use : later) use.user->replaceInput(use.offset, fused->output(1));
  return true;
}

}  // namespace

int add_residual_gradients(const torch::jit::Module& model) {
  int count = 0;
  for (const auto& graph : analysis::inline_forwards(model)) {
    const analysis::WrittenValues written(graph->block());
    std::vector<Node*> norms;
    collect(graph->block(), norms);
    for (Node* norm : norms) count += hand_input_on(norm, written) ? 1 : 0;
  }
  return count;
}

}  // namespace dslaunch::runtime::model::fused
