#include "runtime/model/layers/linear_cut.hpp"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/layers/fused_operators.hpp"
#include "runtime/model/layers/operator_replacement.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

std::optional<Cut::Kind> kind_of_cut(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  if (node->inputs().size() != 3) return std::nullopt;
  if (kind == "aten::chunk") return Cut::Kind::kChunks;
  if (kind == "aten::split_with_sizes") return Cut::Kind::kSizes;
  if (kind != "aten::split") return std::nullopt;
  return node->input(1)->type()->kind() == c10::TypeKind::IntType ? Cut::Kind::kSize : Cut::Kind::kSizes;
}

const char* cut_operator_of(const Node* gemm) {
  const std::string_view kind = gemm->kind().toQualString();
  if (kind == kLinearOperator) return kLinearCutOperator;
  return kind == kAddmmOperator ? kAddmmCutOperator : nullptr;
}

// What makes the value, if this is its only use and in the same block.
Node* sole_maker(const Value* value, const Node* user) {
  Node* made = const_cast<Value*>(value)->node();
  return value->uses().size() == 1 && made->owningBlock() == user->owningBlock() ? made : nullptr;
}

bool join(Node* cut, Cut::Kind kind, const graph::Aliases& aliases) {
  Node* made = sole_maker(cut->input(0), cut);
  Node* view = made != nullptr && made->kind() == c10::aten::view ? made : nullptr;
  Node* gemm = view != nullptr ? sole_maker(view->input(0), view) : made;
  const char* fused_kind = gemm == nullptr ? nullptr : cut_operator_of(gemm);
  if (fused_kind == nullptr) return false;
  // The GEMM moves to the cut.
  const auto inputs = gemm->inputs();
  if (std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return aliases.is_written(input); })) {
    return false;
  }
  auto& graph = *cut->owningGraph();
  const torch::jit::WithInsertPoint before(cut);
  Node* fused = graph.create(c10::Symbol::fromQualString(fused_kind), gemm->inputs(), 1);
  fused->addInput(view != nullptr ? view->input(1) : graph.insertConstant(c10::IValue()));
  Value* pieces = cut->input(1);
  if (kind != Cut::Kind::kSizes) pieces = graph.insertNode(graph.createList(c10::IntType::get(), {pieces}))->output();
  fused->addInput(pieces);
  fused->addInput(graph.insertConstant(static_cast<int64_t>(kind)));
  fused->addInput(cut->input(2));
  fused->setSourceRange(gemm->sourceRange());
  fused->output()->copyMetadata(cut->output());
  fused->insertBefore(cut);
  cut->replaceAllUsesWith(fused);
  cut->destroy();
  if (view != nullptr) view->destroy();
  gemm->destroy();
  return true;
}

int fuse_linear_cuts(Block* block, const graph::Aliases& aliases) {
  int count = 0;
  graph::for_each_node(block, [&](Node* node) {
    const auto kind = kind_of_cut(node);
    if (kind && join(node, *kind, aliases)) count += 1;
  });
  return count;
}

}  // namespace

int fuse_linear_cuts(const torch::jit::Module& model) {
  int count = 0;
  for (const auto& graph : graph::inline_running_forwards(model)) {
    const graph::Aliases aliases(graph->block());
    count += fuse_linear_cuts(graph->block(), aliases);
  }
  return count;
}

}  // namespace dslaunch::runtime::model::layers
