// Pieces of a tensor's last dim that only operators of regions read, as slices, which a region contains.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/model/fusion/fusion_passes.hpp"
#include "runtime/model/fusion/lowering.hpp"
#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/node_checks.hpp"
#include "runtime/model/graph/walk.hpp"

namespace dslaunch::runtime::model::fusion {
namespace {

using graph::is;
using graph::number;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_cut(const Node* node) {
  return is(node, "aten::chunk") || is(node, "aten::split") || is(node, "aten::split_with_sizes");
}

// The node that takes the list of pieces apart, if only operators of regions read them. Null: something else does.
Node* pieces_of(Node* cut) {
  const auto& uses = cut->output()->uses();
  if (number(cut->input(2)) != -1 || uses.size() != 1) return nullptr;
  Node* unpack = uses[0].user;
  if (unpack->kind() != c10::prim::ListUnpack || unpack->owningBlock() != cut->owningBlock()) return nullptr;
  const auto is_read_by_regions = [&](const Value* piece) {
    return piece->hasUses() && std::all_of(piece->uses().begin(), piece->uses().end(), [&](const auto& use) {
             return is_fusible(use.user) && use.user->owningBlock() == cut->owningBlock();
           });
  };
  const auto pieces = unpack->outputs();
  return pieces.size() > 1 && std::all_of(pieces.begin(), pieces.end(), is_read_by_regions) ? unpack : nullptr;
}

class Boundaries {
 public:
  explicit Boundaries(Node* cut) : cut_(cut), graph_(*cut->owningGraph()) {}

  // Where pieces begin, and the end of the last one, as integers of the graph. Empty: they are not known.
  std::vector<Value*> of(size_t pieces) {
    if (is(cut_, "aten::split_with_sizes")) return of_sizes(pieces);
    Value* each = is(cut_, "aten::split") ? cut_->input(1) : width_of_chunks();
    if (each == nullptr || each->type()->kind() != c10::TypeKind::IntType) return {};
    std::vector<Value*> out{graph_.insertConstant(0)};
    for (size_t i = 1; i <= pieces; ++i) {
      out.push_back(graph_.insert(c10::aten::mul, {each, static_cast<int64_t>(i)}));
    }
    return out;
  }

 private:
  std::vector<Value*> of_sizes(size_t pieces) {
    const auto constant = torch::jit::toIValue(cut_->input(1));
    std::vector<int64_t> sizes;
    if (constant && constant->isIntList()) sizes = constant->toIntVector();
    for (const Value* size : graph::elements(cut_->input(1))) {
      if (const auto known = number(size)) sizes.push_back(*known);
    }
    if (sizes.size() != pieces) return {};
    std::vector<Value*> out{graph_.insertConstant(0)};
    int64_t end = 0;
    for (const int64_t size : sizes) out.push_back(graph_.insertConstant(end += size));
    return out;
  }

  // The columns by the number of chunks, rounded up.
  Value* width_of_chunks() {
    const auto chunks = number(cut_->input(1));
    if (!chunks || *chunks < 1) return nullptr;
    Value* columns = graph_.insert(c10::aten::size, {cut_->input(0), -1});
    return graph_.insert(c10::aten::floordiv, {graph_.insert(c10::aten::add, {columns, *chunks - 1}), *chunks});
  }

  Node* cut_;
  Graph& graph_;
};

void replace(Node* cut, Node* unpack) {
  const torch::jit::WithInsertPoint before(cut);
  const auto bounds = Boundaries(cut).of(unpack->outputs().size());
  if (bounds.empty()) return;
  for (size_t i = 0; i < unpack->outputs().size(); ++i) {
    Value* piece = cut->owningGraph()->insert(c10::aten::slice, {cut->input(0), -1, bounds[i], bounds[i + 1], 1});
    piece->node()->setSourceRange(cut->sourceRange());
    unpack->output(i)->replaceAllUsesWith(piece);
  }
  unpack->destroy();
  cut->destroy();
}

}  // namespace

void slice_pieces(torch::jit::Block* block) {
  std::vector<std::pair<Node*, Node*>> found;
  const graph::Aliases aliases(block);
  graph::for_each_node(block, [&](Node* node) {
    if (!is_cut(node) || aliases.is_written(node->input(0))) return;
    if (Node* unpack = pieces_of(node)) found.emplace_back(node, unpack);
  });
  for (const auto& [cut, unpack] : found) replace(cut, unpack);
}

}  // namespace dslaunch::runtime::model::fusion
