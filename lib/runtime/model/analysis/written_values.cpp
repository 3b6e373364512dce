#include "runtime/model/analysis/written_values.hpp"

#include "runtime/model/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool has_writes(const Block* block) {
  for (const Node* node : block->nodes()) {
    const auto* schema = node->maybeSchema();
    if (schema != nullptr && schema->is_mutable()) return true;
    for (const Block* inner : node->blocks()) {
      if (has_writes(inner)) return true;
    }
  }
  return false;
}

// A call whose callee may write to its arguments.
bool may_write(const Node* node) {
  if (node->kind() != c10::prim::CallMethod) return node->kind() == c10::prim::CallFunction;
  const auto type = node->input(0)->type()->cast<c10::ClassType>();
  const auto unit = type == nullptr ? nullptr : units::unit_forward(*type);
  return unit == nullptr || has_writes(unit->original.graph()->block());
}

// A number shares no memory, and a module holds parameters, which are not written to in forward.
bool holds_tensors(const Value* value) {
  const auto kind = value->type()->kind();
  return kind != c10::TypeKind::IntType && kind != c10::TypeKind::FloatType && kind != c10::TypeKind::BoolType &&
         kind != c10::TypeKind::NoneType && kind != c10::TypeKind::ClassType && kind != c10::TypeKind::StringType;
}

}  // namespace

WrittenValues::WrittenValues(const Block* block) {
  visit(block);
  for (const Value* value : written_) spoiled_.insert(root(value));
}

void WrittenValues::visit(const Block* block) {
  for (const Node* node : block->nodes()) {
    for (const Block* inner : node->blocks()) {
      visit(inner);
      for (const Value* output : inner->outputs()) join_all(node->outputs(), output);
      for (const Value* input : inner->inputs()) {
        for (const Value* outer : node->inputs()) join(input, outer);
      }
    }
    visit(node);
  }
}

void WrittenValues::visit(const Node* node) {
  if (node->kind() == c10::prim::GetAttr) {
    join(node->output(), attributes_.emplace(node->s(c10::attr::name), node->output()).first->second);
  }
  if (may_write(node)) written_.insert(written_.end(), node->inputs().begin(), node->inputs().end());
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || schema->is_vararg()) {
    // Constructors of lists and the like, and calls, whose results may be their arguments.
    for (const Value* input : node->inputs()) join_all(node->outputs(), input);
    return;
  }
  for (size_t i = 0; i < node->inputs().size() && i < schema->arguments().size(); ++i) {
    const auto* alias = schema->arguments()[i].alias_info();
    if (alias == nullptr) continue;
    if (alias->isWrite()) written_.push_back(node->input(i));
    join_all(node->outputs(), node->input(i));
  }
}

void WrittenValues::join_all(at::ArrayRef<const Value*> outputs, const Value* value) {
  for (const Value* output : outputs) join(output, value);
}

void WrittenValues::join(const Value* a, const Value* b) {
  if (!holds_tensors(a) || !holds_tensors(b)) return;
  parent_[root(a)] = root(b);
}

const Value* WrittenValues::root(const Value* value) const {
  while (true) {
    const auto found = parent_.find(value);
    if (found == parent_.end() || found->second == value) return value;
    value = found->second;
  }
}

}  // namespace dslaunch::runtime::model::analysis
