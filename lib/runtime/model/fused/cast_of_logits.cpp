#include "runtime/model/fused/cast_of_logits.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace dslaunch::runtime {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool is_cast_to_float(const Node* node) {
  if (node->kind() != c10::aten::to || !node->maybeSchema()) return false;
  const auto index = node->schema().argumentIndexWithName("dtype");
  if (!index) return false;
  const auto dtype = torch::jit::toIValue(node->input(static_cast<size_t>(*index)));
  return dtype && dtype->isInt() && dtype->toScalarType() == at::kFloat;
}

// Operators whose output elements are unchanged elements of the first input.
bool preserves_elements(const Node* node) {
  static const std::unordered_set<std::string_view> kPreserving{"aten::view",  "aten::reshape", "aten::contiguous",
                                                                "aten::slice", "aten::flatten", "aten::squeeze"};
  return kPreserving.count(node->kind().toQualString()) > 0;
}

bool reads_shape_only(const Node* node) {
  return node->kind() == c10::aten::size || node->kind() == c10::aten::dim;
}

bool may_write(const Block* block);

bool may_write(const Node* node) {
  const auto kind = node->kind();
  if (kind == c10::prim::CallFunction) {
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    return !function->isGraphFunction() || may_write(torch::jit::toGraphFunction(*function).graph()->block());
  }
  if (kind == c10::prim::CallMethod || kind == c10::prim::SetAttr || kind == c10::prim::fork ||
      kind == c10::prim::Enter || kind == c10::prim::Exit) {
    return true;
  }
  if (const auto* schema = node->maybeSchema(); schema != nullptr && schema->is_mutable()) return true;
  return std::any_of(node->blocks().begin(), node->blocks().end(), [](const Block* inner) { return may_write(inner); });
}

bool may_write(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(), [](const Node* node) { return may_write(node); });
}

bool may_write_between(const Node* first, const Node* last) {
  for (const Node* node = first->next(); node != last; node = node->next()) {
    if (may_write(node)) return true;
  }
  return false;
}

// The cast and the nodes after it up to `value`, all in `block`; empty: there is no cast.
std::vector<Node*> find_cast_chain(Value* value, const Block* block) {
  std::vector<Node*> chain;
  for (Node* node = value->node(); node->owningBlock() == block; node = node->input(0)->node()) {
    chain.insert(chain.begin(), node);
    if (is_cast_to_float(node)) return chain;
    if (!preserves_elements(node)) break;
  }
  return {};
}

// Whether other nodes need the cast's elements: they and `user` then share its gradient, which accumulates in fp32.
bool has_other_users(const std::vector<Node*>& chain, const Node* user) {
  return std::any_of(chain.begin(), chain.end(), [&](const Node* node) {
    const auto& uses = node->output()->uses();
    return std::any_of(uses.begin(), uses.end(), [&](const torch::jit::Use& use) {
      const bool in_chain = std::find(chain.begin(), chain.end(), use.user) != chain.end();
      return use.user != user && !in_chain && !reads_shape_only(use.user);
    });
  });
}

void redirect_shape_reads(Value* from, Value* to) {
  const std::vector<torch::jit::Use> uses = from->uses();
  for (const auto& use : uses) {
    if (reads_shape_only(use.user)) use.user->replaceInput(use.offset, to);
  }
}

}  // namespace

bool remove_cast(Node* user) {
  const auto chain = find_cast_chain(user->input(0), user->owningBlock());
  if (chain.empty() || has_other_users(chain, user) || may_write_between(chain.front(), user)) return false;
  Value* value = chain.front()->input(0);
  for (Node* node : chain) {
    if (node != chain.front()) {
      Node* same = node->owningGraph()->createClone(node, [](Value* input) { return input; });
      same->replaceInput(0, value);
      same->output()->setType(c10::TensorType::get());  // a trace has recorded element types: those after the cast
      same->insertAfter(node);
      value = same->output();
    }
    redirect_shape_reads(node->output(), value);
  }
  user->replaceInput(0, value);
  for (auto node = chain.rbegin(); node != chain.rend(); ++node) (*node)->destroy();
  return true;
}

}  // namespace dslaunch::runtime
