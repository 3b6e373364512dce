#include "runtime/model/stages/value_kinds.hpp"
#include "runtime/model/graph/walk.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "runtime/model/operators/operator_traits.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// What branches and loops compute inside.
void collect_inner(const Node* node, std::unordered_set<const Value*>& inner) {
  for (const Block* block : node->blocks()) {
    inner.insert(block->inputs().begin(), block->inputs().end());
    graph::for_each_node(block, [&](const Node* deeper) {
      inner.insert(deeper->outputs().begin(), deeper->outputs().end());
      for (const Block* of_deeper : deeper->blocks()) {
        inner.insert(of_deeper->inputs().begin(), of_deeper->inputs().end());
      }
    });
  }
}

void collect_reads_of(Node* node, const std::unordered_set<const Value*>& inner, std::vector<Value*>& out) {
  const auto add = [&](Value* value) {
    if (!inner.count(value) && std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  };
  for (Value* input : node->inputs()) add(input);
  for (Block* block : node->blocks()) {
    for (Node* deeper : block->nodes()) collect_reads_of(deeper, inner, out);
    for (Value* output : block->outputs()) add(output);
  }
}

// What is known of a tensor without its elements.
bool reads_metadata(const Node* node) {
  return operators::traits(node->kind()).reads != operators::Reads::kElements;
}

// These run where they stand and change nothing, so that they may also run on several stages.
bool only_reports(const Node* node) {
  return operators::traits(node->kind()).only_reports;
}

// Random numbers, the clock, objects, and operators whose effects are not declared.
bool runs_once(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  if (kind == "prim::CreateObject" || kind == "prim::TimePoint" || kind == "prim::Enter" || kind == "prim::Exit" ||
      kind == "prim::SetAttr" || node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction) {
    return true;
  }
  if (operators::is_ours(node->kind())) return node->outputs().empty();
  if (node->kind().is_prim()) return false;
  if (node->isNondeterministic()) return true;
  const auto* schema = node->maybeSchema();
  return schema == nullptr || (!node->kind().is_aten() && node->hasSideEffects());
}

bool enters_region(const Node* node) {
  return node->kind() == c10::prim::Enter;
}
bool leaves_region(const Node* node) {
  return node->kind() == c10::prim::Exit;
}

}  // namespace

bool is_number(const c10::TypePtr& type) {
  const auto kind = type->kind();
  return kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType;
}

bool reads_size(const Node* node) {
  const auto reads = operators::traits(node->kind()).reads;
  return reads == operators::Reads::kShape || reads == operators::Reads::kCount;
}

ValueKinds::ValueKinds(const FlatForward& flat, const graph::Aliases& memory)
    : flat_(flat),
      memory_(memory),
      nodes_(flat.nodes.size(), ValueKind::kReplicable),
      effects_(flat.nodes.size()),
      reads_(flat.nodes.size()),
      writes_(flat.nodes.size()),
      in_region_(flat.nodes.size()),
      obstacles_(flat.nodes.size() + 1, nullptr) {
  collect_reads();
  for (int set : memory.written()) {
    for (size_t position : memory.set(set).writes) writes_[position].push_back(set);
  }
  collect_regions();
  while (classify()) {
  }
  collect_ranges();
  for (size_t i = 0; i < flat.nodes.size(); ++i) {
    effects_[i] = nodes_[i] == ValueKind::kCarried || graph::any_node(flat.nodes[i], only_reports);
  }
}

void ValueKinds::collect_reads() {
  for (size_t i = 0; i < flat_.nodes.size(); ++i) {
    std::unordered_set<const Value*> inner;
    collect_inner(flat_.nodes[i], inner);
    collect_reads_of(flat_.nodes[i], inner, reads_[i]);
  }
}

void ValueKinds::collect_regions() {
  int depth = 0;
  for (size_t i = 0; i < flat_.nodes.size(); ++i) {
    if (leaves_region(flat_.nodes[i])) depth -= 1;
    in_region_[i] = depth > 0;
    if (depth > 0) obstacles_[i] = "it lies inside a `with` statement";
    if (enters_region(flat_.nodes[i])) depth += 1;
    if (leaves_region(flat_.nodes[i])) obstacles_[i] = "it lies inside a `with` statement";
  }
}

// State that forward changes stays on one stage.
void ValueKinds::collect_ranges() {
  for (int number : memory_.written()) {
    const auto& set = memory_.set(number);
    if (!set.is_attribute || set.uses.empty()) continue;
    const size_t first = std::min(set.first_use(), set.writes.front());
    const size_t last = std::max(set.last_use(), set.writes.back());
    for (size_t cut = first + 1; cut <= last && cut < obstacles_.size(); ++cut) {
      obstacles_[cut] = "forward changes a buffer or attribute that is used on both sides";
    }
  }
}

// Returns whether anything has changed.
bool ValueKinds::classify() {
  bool has_changed = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const ValueKind kind = kind_of_node(i);
    has_changed |= kind != nodes_[i];
    nodes_[i] = kind;
    if (kind != ValueKind::kCarried) continue;
    for (int set : writes_[i]) {
      if (!memory_.set(set).is_attribute) has_changed |= carried_sets_.insert(set).second;
    }
  }
  return has_changed;
}

ValueKind ValueKinds::kind_of_node(size_t position) const {
  const Node* node = flat_.nodes[position];
  if (node->kind() == c10::prim::Constant) return ValueKind::kReplicable;
  if (node->kind() == c10::prim::GetAttr) return kind_of_attribute(node);
  if (graph::any_node(node, runs_once)) return ValueKind::kCarried;
  for (int set : writes_[position]) {
    if (carried_sets_.count(set) || memory_.set(set).is_attribute) return ValueKind::kCarried;
  }
  for (const Value* output : node->outputs()) {
    for (int set : memory_.sets_of(output)) {
      if (set != graph::Aliases::kNone && carried_sets_.count(set)) return ValueKind::kCarried;
    }
  }
  ValueKind kind = ValueKind::kReplicable;
  for (const Value* input : reads_[position]) kind = std::max(kind, of(input));
  if (reads_metadata(node) && kind == ValueKind::kCarried) kind = ValueKind::kSize;
  if (reads_metadata(node) && kind == ValueKind::kHeld) kind = ValueKind::kReplicable;  // of a fixed shape
  const bool has_tensors = std::any_of(node->outputs().begin(), node->outputs().end(),
                                       [](const Value* output) { return !is_number(output->type()); });
  if (in_region_[position] && has_tensors) return ValueKind::kCarried;
  const bool reads_held = std::any_of(reads_[position].begin(), reads_[position].end(),
                                      [&](const Value* input) { return of(input) == ValueKind::kHeld; });
  if (!reads_held || kind == ValueKind::kCarried || reads_metadata(node)) return kind;
  // A view of a parameter is read where it is needed; what is computed from one is computed once.
  const bool are_views = std::all_of(node->outputs().begin(), node->outputs().end(), [&](const Value* output) {
    const auto sets = memory_.reached_from(output);
    return std::any_of(sets.begin(), sets.end(), [&](int set) { return memory_.set(set).is_attribute; });
  });
  return are_views && !node->outputs().empty() ? ValueKind::kHeld : ValueKind::kCarried;
}

ValueKind ValueKinds::kind_of_attribute(const Node* node) const {
  const auto owner = flat_.objects.find(node->input(0));
  if (owner == flat_.objects.end()) return of(node->input(0));
  const auto& object = owner->second;
  const size_t slot = object->type()->getAttributeSlot(node->s(c10::attr::name));
  if (memory_.is_assigned({object.get(), slot})) return ValueKind::kCarried;
  for (int set : memory_.reached_from(node->output())) {
    const auto& memory = memory_.set(set);
    if (memory.is_parameter || !memory.writes.empty()) return ValueKind::kHeld;
  }
  return ValueKind::kReplicable;
}

ValueKind ValueKinds::of(const Value* value) const {
  const auto found = flat_.position.find(value->node());
  if (found != flat_.position.end()) return nodes_[found->second];
  // An argument of forward, which a stage may write to.
  for (int set : memory_.reached_from(value)) {
    if (carried_sets_.count(set)) return ValueKind::kCarried;
  }
  return ValueKind::kReplicable;
}

bool ValueKinds::depends_on_data(const Value* value) const {
  return of(value) == ValueKind::kCarried;
}

bool ValueKinds::is_structure(size_t position) const {
  const Node* node = flat_.nodes[position];
  const auto kind = node->kind();
  if (kind != c10::prim::TupleConstruct && kind != c10::prim::ListConstruct && kind != c10::prim::DictConstruct) {
    return false;
  }
  if (kind == c10::prim::TupleConstruct) return true;
  for (int set : memory_.sets_of(node->output())) {
    if (set != graph::Aliases::kNone && !memory_.set(set).writes.empty()) return false;
  }
  return true;
}

const char* ValueKinds::obstacle_at(size_t cut) const {
  return obstacles_.at(cut);
}

}  // namespace dslaunch::runtime::model::stages
