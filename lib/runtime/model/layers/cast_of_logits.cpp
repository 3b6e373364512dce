#include "runtime/model/layers/cast_of_logits.hpp"

#include <torch/csrc/jit/api/function_impl.h>

#include <algorithm>
#include <vector>

#include "runtime/model/graph/pattern.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// A cast to fp32, also before operators whose output elements are unchanged elements of the first input.
const graph::Pattern& cast_to_float() {
  static const graph::Pattern pattern{
      .operators = {"aten::to"},
      .operands = {{"dtype", {.constant = static_cast<int64_t>(at::kFloat)}}},
      .through = {"aten::view", "aten::reshape", "aten::contiguous", "aten::slice", "aten::flatten", "aten::squeeze"}};
  return pattern;
}

bool reads_shape_only(const Node* node) {
  return operators::traits(node->kind()).reads == operators::Reads::kShape;
}

bool may_write(const Node* node) {
  const auto kind = node->kind();
  if (kind == c10::prim::CallFunction) {
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    return !function->isGraphFunction() ||
           graph::any_node(torch::jit::toGraphFunction(*function).graph()->block(), may_write);
  }
  if (kind == c10::prim::CallMethod || kind == c10::prim::SetAttr || kind == c10::prim::fork ||
      kind == c10::prim::Enter || kind == c10::prim::Exit) {
    return true;
  }
  const auto* schema = node->maybeSchema();
  return schema != nullptr && schema->is_mutable();
}

// Whether other nodes need the cast's elements: they and `user` then share its gradient, which accumulates in fp32.
bool has_other_users(const graph::Match& chain, const Node* user) {
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

bool may_write_between(const Node* first, const Node* last) {
  for (const Node* node = first->next(); node != last; node = node->next()) {
    if (graph::any_node(node, may_write)) return true;
  }
  return false;
}

bool remove_cast(Node* user) {
  const graph::Match chain = graph::match(user->input(0), user->owningBlock(), cast_to_float());
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

}  // namespace dslaunch::runtime::model::layers
