#include "runtime/model/stages/memory_sets.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool is_container(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::ListType || type->kind() == c10::TypeKind::DictType;
}

bool has_memory(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::FunctionType:
      return false;
    case c10::TypeKind::OptionalType:
      return has_memory(type->expectRef<c10::OptionalType>().getElementType());
    default:
      return true;
  }
}

// Batch norm's schema does not declare that it updates its running statistics.
bool writes(const c10::Argument& argument) {
  return (argument.alias_info() && argument.alias_info()->isWrite()) || argument.name().rfind("running_", 0) == 0;
}

// `list.append(t)` changes the list, `_foreach_add_(list, 1)` changes its elements.
bool writes_elements(const c10::Argument& argument) {
  const auto* info = argument.alias_info();
  if (!info) return true;
  const auto& inner = info->containedTypes();
  return std::any_of(inner.begin(), inner.end(), [](const auto& type) { return type.isWrite(); });
}

bool is_any(const c10::AliasInfo& info) {
  return info.isWildcardBefore() || info.isWildcardAfter();
}

bool names_same_set(const c10::AliasInfo& given, const c10::AliasInfo& returned) {
  return std::any_of(given.beforeSets().begin(), given.beforeSets().end(),
                     [&](const auto& set) { return returned.beforeSets().count(set) > 0; });
}

bool is_structure(const Node* node) {
  const auto kind = node->kind();
  return kind == c10::prim::TupleConstruct || kind == c10::prim::TupleUnpack || kind == c10::prim::TupleIndex ||
         kind == c10::prim::ListConstruct || kind == c10::prim::DictConstruct;
}

}  // namespace

// What an output whose schema names no input's set shares with every input.
MemorySets::Sharing MemorySets::sharing_of(const c10::AliasInfo& returned) {
  if (is_any(returned)) return Sharing::kAnything;
  const auto& inner = returned.containedTypes();
  return std::any_of(inner.begin(), inner.end(), is_any) ? Sharing::kContents : Sharing::kNothing;
}

MemorySets::Sharing MemorySets::sharing_of(const c10::AliasInfo& given, const c10::AliasInfo& returned) {
  if (names_same_set(given, returned)) return Sharing::kAnything;
  const auto& inner = returned.containedTypes();
  const bool is_inside =
      std::any_of(inner.begin(), inner.end(), [&](const auto& type) { return names_same_set(given, type); });
  return is_inside ? Sharing::kContents : Sharing::kNothing;
}

std::vector<c10::TypePtr> leaves_of(const c10::TypePtr& type) {
  const auto tuple = type->cast<c10::TupleType>();
  if (!tuple) return {type};
  std::vector<c10::TypePtr> out;
  for (const auto& element : tuple->elements()) {
    const auto leaves = leaves_of(element);
    out.insert(out.end(), leaves.begin(), leaves.end());
  }
  return out;
}

MemorySets::MemorySets(const FlatForward& flat) : flat_(flat) {
  for (const auto& parameter : flat.module.parameters()) {
    if (parameter.has_storage() && parameter.numel() > 0) {
      parameter_storages_.insert(parameter.storage().unsafeGetStorageImpl());
    }
  }
  auto objects = flat.objects;
  find_assigned(flat.graph->block(), objects);
  for (size_t i = 0; i < flat.nodes.size(); ++i) visit_node(flat.nodes[i], objects, i);
  for (const Value* output : flat.graph->outputs()) use(output, flat.nodes.size());
  finish();
}

int MemorySets::make() {
  entries_.push_back({static_cast<int>(entries_.size()), {}});
  return static_cast<int>(entries_.size()) - 1;
}

int MemorySets::find(int id) const {
  while (entries_[static_cast<size_t>(id)].parent != id) id = entries_[static_cast<size_t>(id)].parent;
  return id;
}

void MemorySets::unite(int one, int other) {
  if (one == kNone || other == kNone) return;
  one = find(one);
  other = find(other);
  if (one == other) return;
  auto& kept = entries_[static_cast<size_t>(one)];
  auto& merged = entries_[static_cast<size_t>(other)];
  merged.parent = one;
  kept.contents.insert(kept.contents.end(), merged.contents.begin(), merged.contents.end());
  kept.is_attribute |= merged.is_attribute;
  kept.is_parameter |= merged.is_parameter;
}

void MemorySets::unite(const Ids& some, const Ids& others) {
  if (some.size() == others.size()) {
    for (size_t i = 0; i < some.size(); ++i) unite(some[i], others[i]);
    return;
  }
  for (int one : some) {
    for (int other : others) unite(one, other);
  }
}

MemorySets::Ids MemorySets::ids_of(const Value* value) {
  const auto found = ids_.find(value);
  if (found != ids_.end()) return found->second;
  Ids out;
  for (const auto& leaf : leaves_of(value->type())) out.push_back(has_memory(leaf) ? make() : kNone);
  return ids_[value] = out;
}

std::set<int> MemorySets::deep(const Ids& ids) const {
  std::set<int> out;
  std::vector<int> left(ids.begin(), ids.end());
  while (!left.empty()) {
    const int id = left.back();
    left.pop_back();
    if (id == kNone || !out.insert(find(id)).second) continue;
    const auto& contents = entries_[static_cast<size_t>(find(id))].contents;
    left.insert(left.end(), contents.begin(), contents.end());
  }
  return out;
}

std::vector<int> MemorySets::sets_of(const Value* value) const {
  const auto found = ids_.find(value);
  if (found == ids_.end()) return std::vector<int>(leaves_of(value->type()).size(), kNone);
  Ids out;
  for (int id : found->second) out.push_back(id == kNone ? kNone : find(id));
  return out;
}

std::set<int> MemorySets::reached_from(const Value* value) const {
  const auto found = ids_.find(value);
  return found == ids_.end() ? std::set<int>() : deep(found->second);
}

int MemorySets::id_of_slot(const c10::intrusive_ptr<c10::ivalue::Object>& object, size_t slot) {
  const auto [place, is_new] = slots_.try_emplace({object.get(), slot}, 0);
  if (!is_new) return place->second;
  const int id = place->second = make();
  entries_[static_cast<size_t>(id)].is_attribute = true;
  for_each_value(object, slot, [&](const ParameterLocation& location, const c10::IValue& part) {
    if (!part.isTensor()) return;
    const at::Tensor& tensor = part.toTensor();
    const bool is_slot_of_parameter = object->type()->is_parameter(slot);
    int held = id;
    if (!location.keys.empty()) {  // in a list or dict
      held = make();
      entries_[static_cast<size_t>(held)].is_attribute = true;
      entries_[static_cast<size_t>(find(id))].contents.push_back(held);
    }
    if (is_slot_of_parameter) entries_[static_cast<size_t>(find(held))].is_parameter = true;
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
    const void* storage = tensor.storage().unsafeGetStorageImpl();
    if (parameter_storages_.count(storage)) entries_[static_cast<size_t>(find(held))].is_parameter = true;
    unite(storages_.try_emplace(storage, held).first->second, held);
  });
  return id;
}

void MemorySets::find_assigned(const Block* block, const analysis::ObjectOfValue& objects) {
  for (const Node* node : block->nodes()) {
    if (node->kind() == c10::prim::SetAttr) {
      const auto owner = objects.find(node->input(0));
      if (owner != objects.end()) {
        const auto& object = owner->second;
        assigned_.insert({object.get(), object->type()->getAttributeSlot(node->s(c10::attr::name))});
      }
    }
    for (const Block* inner : node->blocks()) find_assigned(inner, objects);
  }
}

void MemorySets::visit(const Block* block, analysis::ObjectOfValue& objects, size_t position) {
  for (const Node* node : block->nodes()) visit_node(node, objects, position);
}

void MemorySets::visit_node(const Node* node, analysis::ObjectOfValue& objects, size_t position) {
  if (node->kind() == c10::prim::GetAttr) return read_attribute(node, objects, position);
  for (const Value* input : node->inputs()) use(input, position);
  if (node->kind() == c10::prim::SetAttr) {
    write_attribute(node, objects, position);
  } else if (node->kind() == c10::prim::If) {
    visit_branches(node, objects, position);
  } else if (node->kind() == c10::prim::Loop) {
    visit_loop(node, objects, position);
  } else if (const auto unit = flat_.unit_calls.find(node); unit != flat_.unit_calls.end()) {
    visit_unit(node, unit->second, position);
  } else if (is_structure(node)) {
    visit_structure(node);
  } else {
    for (const Block* inner : node->blocks()) visit(inner, objects, position);
    visit_operator(node, position);
  }
}

// Reading an attribute that forward assigns counts as a use: it must not move across an assignment.
void MemorySets::read_attribute(const Node* node, analysis::ObjectOfValue& objects, size_t position) {
  analysis::bind_attribute(node, objects);
  const auto owner = objects.find(node->input(0));
  if (owner == objects.end()) {  // of an object made in forward
    use(node->input(0), position);
    for (int of_owner : deep(ids_of(node->input(0)))) {
      for (int id : ids_of(node->output())) unite(of_owner, id);
    }
    return;
  }
  const auto& object = owner->second;
  const size_t slot = object->type()->getAttributeSlot(node->s(c10::attr::name));
  if (object->getSlot(slot).isObject()) return;
  const int id = id_of_slot(object, slot);
  if (assigned_.count({object.get(), slot})) uses_.emplace_back(id, position);
  for (int of_value : ids_of(node->output())) unite(id, of_value);
}

void MemorySets::write_attribute(const Node* node, analysis::ObjectOfValue& objects, size_t position) {
  const auto owner = objects.find(node->input(0));
  if (owner == objects.end()) {
    for (int id : ids_of(node->input(0))) {
      if (id == kNone) continue;
      writes_.emplace_back(id, position);
      for (int held : ids_of(node->input(1))) {
        if (held != kNone) entries_[static_cast<size_t>(find(id))].contents.push_back(held);
      }
    }
    return;
  }
  const auto& object = owner->second;
  const size_t slot = object->type()->getAttributeSlot(node->s(c10::attr::name));
  assigned_.insert({object.get(), slot});
  const int id = id_of_slot(object, slot);
  uses_.emplace_back(id, position);
  writes_.emplace_back(id, position);
  for (int of_value : ids_of(node->input(1))) unite(id, of_value);
}

void MemorySets::visit_branches(const Node* node, analysis::ObjectOfValue& objects, size_t position) {
  for (const Block* branch : node->blocks()) {
    visit(branch, objects, position);
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      use(branch->outputs()[i], position);
      unite(ids_of(node->output(i)), ids_of(branch->outputs()[i]));
    }
  }
}

// Carried values: node inputs 2.., block inputs 1.., block outputs 1.., node outputs 0..
void MemorySets::visit_loop(const Node* node, analysis::ObjectOfValue& objects, size_t position) {
  const Block* body = node->blocks()[0];
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    unite(ids_of(body->inputs()[i + 1]), ids_of(node->input(i + 2)));
    unite(ids_of(body->inputs()[i + 1]), ids_of(body->outputs()[i + 1]));
    unite(ids_of(body->inputs()[i + 1]), ids_of(node->output(i)));
  }
  visit(body, objects, position);
}

// The nodes inside a unit are at the position of its call.
void MemorySets::visit_unit(const Node* node, const c10::intrusive_ptr<c10::ivalue::Object>& unit, size_t position) {
  auto body = flatten_body(unit);
  find_assigned(body.graph->block(), body.objects);
  for (size_t i = 1; i < node->inputs().size(); ++i) unite(ids_of(node->input(i)), ids_of(body.graph->inputs()[i]));
  visit(body.graph->block(), body.objects, position);
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    unite(ids_of(node->output(i)), ids_of(body.graph->outputs()[i]));
  }
  bodies_.push_back(std::move(body));
}

void MemorySets::visit_structure(const Node* node) {
  if (node->kind() == c10::prim::TupleConstruct) {
    Ids elements;
    for (const Value* input : node->inputs()) {
      const auto ids = ids_of(input);
      elements.insert(elements.end(), ids.begin(), ids.end());
    }
    unite(ids_of(node->output()), elements);
    return;
  }
  if (node->kind() == c10::prim::TupleUnpack) {
    Ids elements;
    for (const Value* output : node->outputs()) {
      const auto ids = ids_of(output);
      elements.insert(elements.end(), ids.begin(), ids.end());
    }
    unite(elements, ids_of(node->input()));
    return;
  }
  if (node->kind() == c10::prim::TupleIndex) {
    const auto tuple = node->input(0)->type()->cast<c10::TupleType>();
    const auto index = torch::jit::toIValue(node->input(1));
    const auto all = ids_of(node->input(0));
    if (!tuple || !index || !index->isInt()) return unite(ids_of(node->output()), all);
    const auto count = static_cast<int64_t>(tuple->elements().size());
    const int64_t wanted = index->toInt() < 0 ? index->toInt() + count : index->toInt();
    size_t begin = 0;
    for (int64_t i = 0; i < wanted; ++i) begin += leaves_of(tuple->elements().at(static_cast<size_t>(i))).size();
    const size_t size = ids_of(node->output()).size();
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    return unite(ids_of(node->output()), Ids(first, first + static_cast<std::ptrdiff_t>(size)));
  }
  for (int list : ids_of(node->output())) {
    for (const Value* input : node->inputs()) {
      for (int id : ids_of(input)) {
        if (id != kNone) entries_[static_cast<size_t>(find(list))].contents.push_back(id);
      }
    }
  }
}

void MemorySets::visit_operator(const Node* node, size_t position) {
  const auto* schema = node->maybeSchema();
  for (size_t i = 0; schema && i < node->inputs().size() && i < schema->arguments().size(); ++i) {
    if (!writes(schema->arguments()[i])) continue;
    const bool only_container = is_container(node->input(i)->type()) && !writes_elements(schema->arguments()[i]);
    if (only_container) {
      for (int id : ids_of(node->input(i))) writes_.emplace_back(id, position);
      // A value put into a list is part of the list from then on.
      for (size_t other = 0; other < node->inputs().size(); ++other) {
        if (other == i) continue;
        for (int id : ids_of(node->input(other))) {
          if (id == kNone) continue;
          for (int list : ids_of(node->input(i))) entries_[static_cast<size_t>(find(list))].contents.push_back(id);
        }
      }
    } else {
      for (int id : deep(ids_of(node->input(i)))) writes_.emplace_back(id, position);
    }
  }
  add_outputs(node, schema);
}

// A tensor that an operator newly allocates shares nothing; a view shares the memory of what it views; for an operator
// without a schema, or whose schema leaves it open, the outputs may share that of all inputs.
void MemorySets::add_outputs(const Node* node, const c10::FunctionSchema* schema) {
  const bool is_declared = schema && schema->returns().size() == node->outputs().size();
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    const auto* info = is_declared ? schema->returns()[i].alias_info() : nullptr;
    if (is_declared && !info) continue;
    const Sharing all = info ? sharing_of(*info) : Sharing::kAnything;
    for (size_t j = 0; j < node->inputs().size(); ++j) {
      const bool is_given = info && j < schema->arguments().size() && schema->arguments()[j].alias_info();
      const Sharing one =
          is_given && all == Sharing::kNothing ? sharing_of(*schema->arguments()[j].alias_info(), *info) : all;
      share(node->output(i), node->input(j), one);
    }
  }
}

void MemorySets::share(const Value* output, const Value* input, Sharing sharing) {
  if (sharing == Sharing::kNothing) return;
  const bool takes_element = is_container(input->type()) && !is_container(output->type());
  std::set<int> held;
  for (int id : ids_of(input)) {
    if (id == kNone) continue;
    if (!takes_element) held.insert(find(id));
    const auto& contents = entries_[static_cast<size_t>(find(id))].contents;
    if (takes_element) held.insert(contents.begin(), contents.end());
  }
  for (int one : ids_of(output)) {
    if (one == kNone) continue;
    for (int other : held) {
      const bool is_content =
          is_container(output->type()) && (sharing == Sharing::kContents || !is_container(input->type()));
      if (is_content) {
        entries_[static_cast<size_t>(find(one))].contents.push_back(other);
      } else {
        unite(one, other);
      }
    }
  }
}

void MemorySets::use(const Value* value, size_t position) {
  for (int id : ids_of(value)) {
    if (id != kNone) uses_.emplace_back(id, position);
  }
}

void MemorySets::finish() {
  for (size_t id = 0; id < entries_.size(); ++id) {
    const auto& entry = entries_[id];
    auto& set = sets_[find(static_cast<int>(id))];
    set.is_attribute |= entry.is_attribute;
    set.is_parameter |= entry.is_parameter;
  }
  for (const auto& [id, position] : uses_) {
    for (int reached : deep({id})) sets_[reached].uses.push_back(position);
  }
  for (const auto& [id, position] : writes_) sets_[find(id)].writes.push_back(position);
  for (auto& [number, set] : sets_) {
    for (auto* list : {&set.uses, &set.writes}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    if (!set.writes.empty()) written_.push_back(number);
  }
}

}  // namespace dslaunch::runtime::model::stages
