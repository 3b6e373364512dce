#include "runtime/model/decoding/content_flow.hpp"

#include <string_view>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::decoding {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool is_tensor(const Value* value) {
  return value->type()->isSubtypeOf(*c10::TensorType::get());
}

// Its results are the same whatever the elements of its first operand are.
bool reads_only_shape(const Node* node) {
  const auto& traits = operators::traits(node->kind());
  return traits.reads != operators::Reads::kElements || (traits.fills && !operators::works_in_place(node->kind()));
}

// The value whose memory the output shares; null: none.
const Value* base_of(const Value* value) {
  const Node* node = value->node();
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || node->inputs().empty() || value->offset() >= schema->returns().size()) return nullptr;
  return schema->returns()[value->offset()].alias_info() != nullptr ? node->input(0) : nullptr;
}

bool writes_to_first(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || schema->arguments().empty()) return false;
  const auto* alias = schema->arguments()[0].alias_info();
  return alias != nullptr && alias->isWrite();
}

}  // namespace

ContentFlow::ContentFlow(const Block* block) {
  for (const Value* input : block->inputs()) {
    if (is_tensor(input) || input->type()->kind() == c10::TypeKind::OptionalType) flows_[input] = {{input}, {input}};
  }
  visit(block);
}

void ContentFlow::visit(const Block* block) {
  for (const Node* node : block->nodes()) {
    for (const Block* inner : node->blocks()) visit(inner);
    visit(node);
  }
}

void ContentFlow::visit(const Node* node) {
  Flow flow;
  const bool only_shape = reads_only_shape(node);
  const auto add = [&](const Value* value, bool is_first) {
    const auto found = flows_.find(value);
    if (found == flows_.end()) return;
    const Flow& from = found->second;
    flow.sizes.insert(from.sizes.begin(), from.sizes.end());
    if (!(only_shape && is_first && is_tensor(value))) flow.elements.insert(from.elements.begin(), from.elements.end());
  };
  for (size_t i = 0; i < node->inputs().size(); ++i) add(node->input(i), i == 0);
  for (const Block* inner : node->blocks()) {
    for (const Value* output : inner->outputs()) add(output, false);
  }
  if (flow.elements.empty() && flow.sizes.empty()) return;
  for (const Value* output : node->outputs()) flows_[output] = flow;
  if (writes_to_first(node)) write_through(node->input(0), flow);
}

void ContentFlow::write_through(const Value* view, const Flow& flow) {
  for (; view != nullptr; view = base_of(view)) {
    flows_[view].elements.insert(flow.elements.begin(), flow.elements.end());
    flows_[view].sizes.insert(flow.sizes.begin(), flow.sizes.end());
  }
}

const ContentFlow::Arguments& ContentFlow::of(const Value* value) const {
  static const Arguments kNone;
  const auto found = flows_.find(value);
  return found == flows_.end() ? kNone : found->second.elements;
}

const ContentFlow::Arguments& ContentFlow::sizes_of(const Value* value) const {
  static const Arguments kNone;
  const auto found = flows_.find(value);
  return found == flows_.end() ? kNone : found->second.sizes;
}

}  // namespace dslaunch::runtime::model::decoding
