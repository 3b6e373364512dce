#include "runtime/model/dtypes/dtype_values.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <map>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"

namespace dslaunch::runtime::model::dtypes {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// The operand of the tuple's construction that `value`, an element unpacked from it, was; a null user: not known.
Operand element_of(const Value* value) {
  const Node* unpack = value->node();
  if (unpack->kind() != c10::prim::TupleUnpack) return {};
  const Value* tuple = unpack->input(0);
  if (tuple->node()->kind() == c10::prim::TupleUnpack) {
    const Operand inner = element_of(tuple);
    if (inner.user == nullptr) return {};
    tuple = inner.value();
  }
  if (tuple->node()->kind() != c10::prim::TupleConstruct) return {};
  return {const_cast<Node*>(tuple->node()), value->offset()};
}

// The elements `index` unpacked from `tuple`.
void add_unpacked(const Value* tuple, size_t index, std::vector<Value*>& out, bool& leaves) {
  for (const auto& use : tuple->uses()) {
    if (use.user->kind() == c10::prim::TupleUnpack) {
      out.push_back(use.user->output(index));
    } else if (use.user->kind() == c10::prim::TupleConstruct) {
      std::vector<Value*> tuples;
      add_unpacked(use.user->output(), use.offset, tuples, leaves);
      for (const Value* inner : tuples) add_unpacked(inner, index, out, leaves);
    } else {
      leaves = true;
    }
  }
}

bool yields_indices(const Node* node, size_t output) {
  return output > 0 && operators::traits(node->kind()).yields_indices;
}

bool is_integral_constant(const Node* node) {
  if (node->kind() != c10::prim::Constant) return false;
  const auto value = torch::jit::toIValue(node->output());
  return value && value->isTensor() && !at::isFloatingType(value->toTensor().scalar_type());
}

}  // namespace

Operand entry_of(Operand operand) {
  while (true) {
    const Operand element = element_of(operand.value());
    if (element.user == nullptr) return operand;
    operand = element;
  }
}

std::vector<Operand> uses_of(Value* value) {
  std::vector<Operand> out;
  for (const auto& use : value->uses()) out.push_back({use.user, use.offset});
  return out;
}

std::vector<Value*> values_after(const Operand& operand, bool& leaves) {
  std::vector<Value*> out;
  if (operand.user->kind() == c10::prim::TupleConstruct) {
    add_unpacked(operand.user->output(), operand.input, out, leaves);
  } else if (operand.user->kind() == c10::prim::Return) {
    leaves = true;
  } else {
    for (size_t i = 0; i < operand.user->outputs().size(); ++i) {
      if (!yields_indices(operand.user, i)) out.push_back(operand.user->output(i));
    }
  }
  return out;
}

ValueOrigins::ValueOrigins(torch::jit::Graph& graph, const torch::jit::Module& model) {
  graph::for_each_node(graph.block(), [&](Node* node) { nodes_.push_back(node); });
  bind_attributes(graph, model);
  for (bool changed = true; changed;) {
    changed = false;
    for (Node* node : nodes_) changed |= follow(node);
  }
}

const std::vector<std::string>& ValueOrigins::buffer_names(const Value* value) const {
  static const std::vector<std::string> kNone;
  const auto found = buffers_.find(value);
  return found == buffers_.end() ? kNone : found->second;
}

void ValueOrigins::bind_attributes(torch::jit::Graph& graph, const torch::jit::Module& model) {
  std::map<const void*, std::vector<std::string>> paths;
  for (const auto& module : model.named_modules()) paths[module.value._ivalue().get()].push_back(module.name);
  graph::ObjectOfValue objects{{graph.inputs().at(0), model._ivalue()}};
  const auto bind = [&](Node* node) {
    if (node->kind() != c10::prim::GetAttr) return;
    graph::bind_attribute(node, objects);
    const auto owner = objects.find(node->input(0));
    if (owner == objects.end()) return;
    const auto& type = *owner->second->type();
    const auto& name = node->s(c10::attr::name);
    const size_t slot = type.getAttributeSlot(name);
    const auto& held = owner->second->getSlot(slot);
    if (!held.isTensor()) return;
    if (!held.toTensor().defined() || !at::isFloatingType(held.toTensor().scalar_type())) {
      integers_.insert(node->output());
    } else if (graph::is_parameter(type, slot)) {
      parameters_.insert(node->output());
      dependent_.insert(node->output());
    } else if (type.is_module() && type.is_buffer(slot)) {
      for (const auto& path : paths[owner->second.get()])
        buffers_[node->output()].push_back(file::join_path(path, name));
    }
  };
  for (Node* node : nodes_) bind(node);
}

bool ValueOrigins::mark(const Value* value, bool dependent, bool integer) {
  bool changed = false;
  if (dependent && !integer) changed |= dependent_.insert(value).second;
  if (integer) changed |= integers_.insert(value).second;
  return changed;
}

// A parameter's influence reaches the tensor of which an operator in place changes a view.
bool ValueOrigins::mark_written(const Value* value) {
  bool changed = false;
  while (true) {
    changed |= mark(value, true, false);
    const Node* node = value->node();
    if (type_role(node) != TypeRole::kElements || node->inputs().empty() || parameters_.count(node->input(0))) break;
    value = node->input(0);
  }
  return changed;
}

bool ValueOrigins::follow(Node* node) {
  if (is_integral_constant(node)) return mark(node->output(), false, true);
  if (node->kind() == c10::prim::Constant || node->kind() == c10::prim::GetAttr) return false;
  if (node->kind() == c10::prim::TupleConstruct) return false;  // elements are followed one by one
  bool changed = false;
  if (node->kind() == c10::prim::TupleUnpack) {
    for (Value* output : node->outputs()) {
      const Operand element = element_of(output);
      if (element.user == nullptr) continue;
      changed |= mark(output, depends_on_parameter(element.value()), is_integer(element.value()));
    }
    return changed;
  }
  const auto role = type_role(node);
  bool dependent = false, integer = true;
  const auto add = [&](const Value* value) {
    dependent |= depends_on_parameter(value);
    integer &= is_integer(value);
  };
  const auto operands = operands_of(node);
  for (const auto& operand : operands) add(operand.value());
  for (Block* block : node->blocks()) {
    for (const Value* value : block->outputs()) add(value);
    for (const Value* value : block->inputs()) changed |= mark(value, dependent, false);
  }
  const bool keeps_integers = role == TypeRole::kElements && !operands.empty() && integer;
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    const bool is_index = role == TypeRole::kNoFloat || keeps_integers || yields_indices(node, i);
    changed |= mark(node->output(i), dependent, is_index);
  }
  if (operators::works_in_place(node->kind()) && dependent && !is_integer(node->input(0)))
    changed |= mark_written(node->input(0));
  return changed;
}

}  // namespace dslaunch::runtime::model::dtypes
