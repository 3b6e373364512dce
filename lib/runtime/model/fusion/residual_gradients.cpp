#include "runtime/model/fusion/fusion_passes.hpp"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;

constexpr char kLayerNorm[] = "dslaunch::layer_norm", kLayerNormAndInput[] = "dslaunch::layer_norm_and_input";

bool makes_new_tensor(const Node* node) {
  return operators::traits(node->kind()).makes_new_tensor;
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

std::vector<Node*> norms_and_groups(Block* block) {
  std::vector<Node*> out;
  graph::for_each_node(block, [&](Node* node) {
    const bool is_norm = std::string_view(node->kind().toQualString()) == kLayerNorm;
    if (is_norm || group_in(node) != nullptr) out.push_back(node);
  });
  return out;
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

// Readers that may read the node's result in the place of its input; none: the input stays.
std::vector<Use> later_readers(const Value* input, const Node* node, const graph::Aliases& aliases) {
  const auto made = input->node()->kind();
  const bool has_gradient = input->type()->isSubtypeOf(*c10::TensorType::get()) && made != c10::prim::GetAttr &&
                            made != c10::prim::Constant &&
                            std::string_view(made.toQualString()) != "dslaunch::keep_constants";
  std::vector<Use> later;
  if (!has_gradient) return later;
  for (const Use& use : input->uses()) {
    if (use.user != node && is_in_scope(use.user, node) && only_reads(use)) later.push_back(use);
  }
  if (!later.empty() && aliases.is_written(input)) later.clear();
  return later;
}

void read_from(const std::vector<Use>& readers, Value* value) {
  for (const Use& use : readers) use.user->replaceInput(use.offset, value);
}

bool hand_on_by_norm(Node* norm, const graph::Aliases& aliases) {
  Value* input = norm->input(0);
  const auto later = later_readers(input, norm, aliases);
  if (later.empty()) return false;
  Node* fused = norm->owningGraph()->create(c10::Symbol::fromQualString(kLayerNormAndInput), norm->inputs(), 2);
  fused->setSourceRange(norm->sourceRange());
  fused->output(0)->copyMetadata(norm->output());
  fused->output(1)->setType(input->type());
  fused->insertBefore(norm);
  norm->output()->replaceAllUsesWith(fused->output(0));
  norm->destroy();
  read_from(later, fused->output(1));
  return true;
}

// An input of the subgraph becomes a result of it as well.
bool hand_on_by_group(Node* node, const graph::Aliases& aliases) {
  bool has_changed = false;
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    const auto later = later_readers(node->input(i), node, aliases);
    if (later.empty()) continue;
    torch::jit::Graph& group = *node->g(c10::attr::Subgraph);
    group.registerOutput(group.inputs()[i]);
    Value* result = node->addOutput();
    result->setType(node->input(i)->type());
    read_from(later, result);
    has_changed = true;
  }
  return has_changed;
}

}  // namespace

int add_residual_gradients(const torch::jit::Module& model) {
  int count = 0;
  for (const auto& graph : graph::inline_running_forwards(model)) {
    const graph::Aliases aliases(graph->block());
    for (Node* node : norms_and_groups(graph->block())) {
      const bool is_group = group_in(node) != nullptr;
      count += (is_group ? hand_on_by_group(node, aliases) : hand_on_by_norm(node, aliases)) ? 1 : 0;
    }
  }
  return count;
}

}  // namespace dslaunch::runtime::model::fusion
