#include "runtime/model/graph/pattern.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool is_one_of(const Node* node, const std::vector<std::string_view>& operators) {
  const std::string_view kind = node->kind().toQualString();
  return std::find(operators.begin(), operators.end(), kind) != operators.end();
}

const Value* operand_of(const Node* node, std::string_view argument) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return nullptr;
  const auto index = schema->argumentIndexWithName(argument);
  return index && static_cast<size_t>(*index) < node->inputs().size() ? node->input(static_cast<size_t>(*index))
                                                                      : nullptr;
}

bool is_constant(const Value* value, const c10::IValue& expected) {
  const auto constant = torch::jit::toIValue(value);
  return constant && expected == *constant;
}

bool add_matches(const Value* value, const Block* block, const Pattern& pattern, Match& out);

bool add_matches(Node* node, const Pattern& pattern, Match& out) {
  if (!is_one_of(node, pattern.operators)) return false;
  Match found;
  for (const auto& [argument, inner] : pattern.operands) {
    const Value* operand = operand_of(node, argument);
    if (operand == nullptr || !add_matches(operand, node->owningBlock(), inner, found)) return false;
  }
  out.insert(out.end(), found.begin(), found.end());
  out.push_back(node);
  return true;
}

bool add_matches(const Value* value, const Block* block, const Pattern& pattern, Match& out) {
  if (pattern.constant) return is_constant(value, *pattern.constant);
  if (pattern.operators.empty()) return true;
  Node* node = const_cast<Value*>(value)->node();
  if (node->owningBlock() != block) return false;
  if (add_matches(node, pattern, out)) return true;
  if (!is_one_of(node, pattern.through) || node->inputs().empty()) return false;
  if (!add_matches(node->input(0), block, pattern, out)) return false;
  out.push_back(node);
  return true;
}

}  // namespace

Match match(Node* node, const Pattern& pattern) {
  Match out;
  add_matches(node, pattern, out);
  return out;
}

Match match(const Value* value, const Block* block, const Pattern& pattern) {
  Match out;
  add_matches(value, block, pattern, out);
  return out;
}

void replace_node(Node* node, const char* kind, at::ArrayRef<Value*> more) {
  Node* fused = node->owningGraph()->create(c10::Symbol::fromQualString(kind), node->inputs(), /*num_outputs=*/1);
  for (auto* value : more) fused->addInput(value);
  fused->setSourceRange(node->sourceRange());
  fused->output()->copyMetadata(node->output());
  fused->insertBefore(node);
  node->replaceAllUsesWith(fused);
  node->destroy();
}

}  // namespace dslaunch::runtime::model::graph
