#include "runtime/model/graph/aliases.hpp"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "runtime/model/graph/memory_types.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/torchscript/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// What a unit's nodes write to, apart from a norm's running statistics, which are its own.
Writing writing_of_body(const Block* body) {
  auto out = Writing::kNothing;
  for_each_node(body, [&](const Node* node) {
    const auto* schema = node->maybeSchema();
    if (schema == nullptr || !schema->is_mutable()) return;
    for (size_t i = 0; i < node->inputs().size(); ++i) out = std::max(out, writing_of(node, i));
  });
  return out;
}

// What the callee may write to among its arguments and what they hold.
Writing writing_of_call(const Node* node) {
  if (node->kind() == c10::prim::CallFunction) return Writing::kElements;
  if (node->kind() != c10::prim::CallMethod) return Writing::kNothing;
  const auto type = node->input(0)->type()->cast<c10::ClassType>();
  const auto unit = type == nullptr ? nullptr : units::unit_forward(*type);
  return unit == nullptr ? Writing::kElements : writing_of_body(unit->original.graph()->block());
}

bool is_tuple_node(const Node* node) {
  const auto kind = node->kind();
  return kind == c10::prim::TupleConstruct || kind == c10::prim::TupleUnpack || kind == c10::prim::TupleIndex;
}

bool makes_container(const Node* node) {
  return node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::DictConstruct;
}

void sort(std::vector<size_t>& positions) {
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
}

// Runs code that is not in the graph.
bool escapes_graph(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction || kind == "prim::fork" ||
         kind == "prim::awaitable" || kind == "prim::rpc_async" || node->hasAttribute(c10::attr::Subgraph);
}

bool computes_gradients(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return kind == "aten::grad" || kind == "aten::backward";
}

}  // namespace

Aliases::Aliases(const FlatGraph& flat) : objects_(flat.objects), unit_calls_(flat.unit_calls) {
  for (const auto& parameter : flat.module.parameters()) {
    if (parameter.has_storage() && parameter.numel() > 0) {
      parameter_storages_.insert(parameter.storage().unsafeGetStorageImpl());
    }
  }
  analyze(std::as_const(*flat.graph).inputs(), flat.graph->block());
}

Aliases::Aliases(const Block* block) : knows_objects_(false) {
  analyze(block->inputs(), block);
}

void Aliases::analyze(at::ArrayRef<const Value*> arguments, const Block* block) {
  for (size_t i = 1; i < arguments.size(); ++i) make_own(arguments[i], {.is_argument = true});  // [0] is self
  do {
    has_grown_ = false;
    visit(block);
  } while (has_grown_);
  is_recording_ = true;
  for (const Node* node : block->nodes()) {
    visit(node);
    position_ += 1;
  }
  for (const Value* output : block->outputs()) use(output);
  unite_locations();
  collect_sets();
}

// Locations
// --------------------------------------------------------------------------------------------------------------

int Aliases::make(const Location& like, const c10::TypePtr& type) {
  const int location = static_cast<int>(locations_.size());
  locations_.push_back(like);
  locations_.back().is_container = is_container(type);
  for (const auto& element : held_types(type)) {
    const int held = make(like, element);
    locations_[static_cast<size_t>(location)].contents.insert(held);
  }
  return location;
}

// What a node makes, or an argument is: a location of its own for each leaf.
void Aliases::make_own(const Value* value, const Location& like) {
  auto& leaves = locations_of(value);
  auto& own = own_[value];
  if (own.empty()) {
    for (const auto& leaf : leaves_of(value->type())) own.push_back(has_memory(leaf) ? make(like, leaf) : kNone);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (own[i] != kNone) grow(leaves[i], {own[i]});
  }
}

int Aliases::location_of_slot(const Object& object, size_t slot) {
  const SlotKey key{object.get(), slot};
  if (const auto found = slots_.find(key); found != slots_.end()) return found->second;
  const int location = static_cast<int>(locations_.size());
  const auto type = object->type()->getAttribute(slot);
  locations_.push_back({.is_container = is_container(type), .is_attribute = true, .slot = key});
  slots_[key] = location;
  add_held(location, object, slot);
  return location;
}

// The tensors of an attribute: itself one, or in a list or dict.
void Aliases::add_held(int location, const Object& object, size_t slot) {
  const bool is_slot_of_parameter = is_parameter(*object->type(), slot);
  for_each_value(object, slot, [&](const ParameterLocation& where, const c10::IValue& part) {
    if (!part.isTensor()) return;
    int held = location;
    if (!where.keys.empty()) {
      held = static_cast<int>(locations_.size());
      locations_.push_back({.is_attribute = true, .slot = {object.get(), slot}});
      locations_[static_cast<size_t>(location)].contents.insert(held);
    }
    const at::Tensor& tensor = part.toTensor();
    auto& of_tensor = locations_[static_cast<size_t>(held)];
    of_tensor.is_parameter |= is_slot_of_parameter;
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
    const void* storage = tensor.storage().unsafeGetStorageImpl();
    of_tensor.is_parameter |= parameter_storages_.count(storage) > 0;
    storages_[storage].insert(held);
  });
}

int Aliases::location_of_name(const Node* read_or_write, const c10::TypePtr& type) {
  const auto& name = read_or_write->s(c10::attr::name);
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  return names_[name] = make({.is_attribute = true}, type);
}

std::vector<Aliases::Locations>& Aliases::locations_of(const Value* value) {
  auto& locations = values_[value];
  if (locations.empty()) locations.resize(leaves_of(value->type()).size());
  return locations;
}

Aliases::Locations Aliases::all_of(const Value* value) {
  const auto& leaves = locations_of(value);
  if (leaves.size() == 1) return leaves.front();
  Locations out;
  for (const auto& leaf : leaves) out.insert(leaf.begin(), leaf.end());
  return out;
}

Aliases::Locations Aliases::contents_of(const Locations& locations) const {
  Locations out;
  for (int location : locations) {
    const auto& contents = locations_[static_cast<size_t>(location)].contents;
    out.insert(contents.begin(), contents.end());
  }
  return out;
}

Aliases::Locations Aliases::containers_among(const Locations& locations) const {
  Locations out;
  for (int location : locations) {
    if (locations_[static_cast<size_t>(location)].is_container) out.insert(location);
  }
  return out;
}

Aliases::Locations Aliases::reached(const Locations& locations) const {
  Locations out;
  std::vector<int> left(locations.begin(), locations.end());
  while (!left.empty()) {
    const int location = left.back();
    left.pop_back();
    if (!out.insert(location).second) continue;
    const auto& contents = locations_[static_cast<size_t>(location)].contents;
    left.insert(left.end(), contents.begin(), contents.end());
  }
  return out;
}

void Aliases::grow(Locations& locations, const Locations& more) {
  const size_t before = locations.size();
  locations.insert(more.begin(), more.end());
  has_grown_ |= locations.size() != before;
}

void Aliases::grow(const Value* value, const Locations& more) {
  const auto types = leaves_of(value->type());
  auto& leaves = locations_of(value);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (has_memory(types[i])) grow(leaves[i], more);
  }
}

void Aliases::flow(const Value* from, const Value* to) {
  if (from == to) return;
  const auto& given = locations_of(from);
  auto& leaves = locations_of(to);
  if (given.size() != leaves.size()) return grow(to, all_of(from));
  for (size_t i = 0; i < leaves.size(); ++i) grow(leaves[i], given[i]);
}

void Aliases::put_into(const Locations& containers, const Locations& more) {
  for (int container : containers) grow(locations_[static_cast<size_t>(container)].contents, more);
}

// Nodes ---------------------------------------------------------------------------------------------------------------

void Aliases::visit(const Block* block) {
  for (const Node* node : block->nodes()) visit(node);
}

void Aliases::visit(const Node* node) {
  if (node->kind() == c10::prim::GetAttr) return read_attribute(node);
  for (const Value* input : node->inputs()) use(input);
  if (node->kind() == c10::prim::SetAttr) {
    write_attribute(node);
  } else if (node->kind() == c10::prim::If) {
    visit_branches(node);
  } else if (node->kind() == c10::prim::Loop) {
    visit_loop(node);
  } else if (const auto unit = unit_calls_.find(node); unit != unit_calls_.end()) {
    visit_unit(node, unit->second);
  } else if (is_tuple_node(node)) {
    visit_tuple(node);
  } else {
    for (const Block* inner : node->blocks()) visit(inner);
    visit_operator(node);
    visit_writes(node);
  }
}

// Reading an attribute that forward assigns counts as a use: it must not move across an assignment.
void Aliases::read_attribute(const Node* node) {
  const Value* from = node->input(0);
  const auto owner = objects_.find(from);
  if (owner == objects_.end() && !from->type()->is_module()) return read_member(node);
  int location = kNone;
  if (owner == objects_.end()) {
    if (node->output()->type()->is_module()) return;
    location = location_of_name(node, node->output()->type());
  } else {
    const auto& object = owner->second;
    const size_t slot = object->type()->getAttributeSlot(node->s(c10::attr::name));
    if (object->getSlot(slot).isObject()) return;
    location = location_of_slot(object, slot);
    if (is_recording_ && is_assigned({object.get(), slot})) uses_.emplace_back(location, position_);
  }
  grow(node->output(), {location});
  grow(node->output(), stored_[location]);
}

// Of an object that forward makes or is given: any of its attributes of this kind.
void Aliases::read_member(const Node* node) {
  use(node->input(0));
  const Locations objects = all_of(node->input(0));
  const bool is_given = std::any_of(objects.begin(), objects.end(),
                                    [&](int object) { return locations_[static_cast<size_t>(object)].is_argument; });
  make_own(node->output(), {.is_argument = is_given});
  put_into(objects, all_of(node->output()));
  const Locations members = contents_of(objects), containers = containers_among(members);
  Locations others;
  std::set_difference(members.begin(), members.end(), containers.begin(), containers.end(),
                      std::inserter(others, others.end()));
  grow(node->output(), is_container(node->output()->type()) ? containers : others);
}

void Aliases::write_attribute(const Node* node) {
  const Value* to = node->input(0);
  const auto owner = objects_.find(to);
  if (owner == objects_.end() && !to->type()->is_module()) {
    put_into(all_of(to), all_of(node->input(1)));
    return note_write(all_of(to));
  }
  int location = kNone;
  if (owner == objects_.end()) {
    location = location_of_name(node, node->input(1)->type());
  } else {
    const auto& object = owner->second;
    const size_t slot = object->type()->getAttributeSlot(node->s(c10::attr::name));
    assigned_.insert({object.get(), slot});
    location = location_of_slot(object, slot);
  }
  if (is_recording_) uses_.emplace_back(location, position_);
  note_write({location});
  grow(stored_[location], all_of(node->input(1)));
}

void Aliases::visit_branches(const Node* node) {
  for (const Block* branch : node->blocks()) {
    visit(branch);
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      use(branch->outputs()[i]);
      flow(branch->outputs()[i], node->output(i));
    }
  }
}

// Carried values: node inputs 2.., block inputs 1.., block outputs 1.., node outputs 0..
void Aliases::visit_loop(const Node* node) {
  const Block* body = node->blocks()[0];
  for (size_t i = 0; i < node->outputs().size(); ++i) flow(node->input(i + 2), body->inputs()[i + 1]);
  visit(body);
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    flow(body->outputs()[i + 1], body->inputs()[i + 1]);
    flow(body->inputs()[i + 1], node->output(i));
  }
}

// The nodes inside a unit are at the position of its call.
void Aliases::visit_unit(const Node* node, const Object& unit) {
  auto& body = bodies_[node];
  if (body.graph == nullptr) {
    body = flatten_forward(torch::jit::Module(unit));
    objects_.insert(body.objects.begin(), body.objects.end());
    if (obstacle_.empty()) obstacle_ = body.obstacle;
  }
  for (size_t i = 1; i < node->inputs().size(); ++i) flow(node->input(i), body.graph->inputs()[i]);
  visit(std::as_const(*body.graph).block());
  for (size_t i = 0; i < node->outputs().size(); ++i) flow(body.graph->outputs()[i], node->output(i));
}

void Aliases::visit_tuple(const Node* node) {
  std::vector<Locations> elements;
  const bool is_made = node->kind() == c10::prim::TupleConstruct;
  for (const Value* value : is_made ? node->inputs() : node->inputs().slice(0, 1)) {
    const auto& leaves = locations_of(value);
    elements.insert(elements.end(), leaves.begin(), leaves.end());
  }
  size_t next = 0;
  if (node->kind() == c10::prim::TupleIndex) {
    const auto tuple = node->input(0)->type()->cast<c10::TupleType>();
    const auto index = torch::jit::toIValue(node->input(1));
    if (!tuple || !index || !index->isInt()) return grow(node->output(), all_of(node->input(0)));
    const auto count = static_cast<int64_t>(tuple->elements().size());
    const int64_t wanted = index->toInt() < 0 ? index->toInt() + count : index->toInt();
    for (int64_t i = 0; i < wanted; ++i) next += leaves_of(tuple->elements().at(static_cast<size_t>(i))).size();
  }
  for (const Value* output : node->outputs()) {
    for (auto& leaf : locations_of(output)) grow(leaf, elements.at(next++));
  }
}

// A tensor that an operator newly allocates shares nothing; a view shares the memory of what it views; for an operator
// without a schema, or whose schema leaves it open, the outputs may share that of all inputs.
void Aliases::visit_operator(const Node* node) {
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    make_own(node->output(i), {});
    for (size_t j = 0; j < node->inputs().size(); ++j) share(node, i, j);
  }
}

void Aliases::share(const Node* node, size_t output, size_t input) {
  const Value* to = node->output(output);
  const Value* from = node->input(input);
  const auto sharing = makes_container(node) ? Sharing::kContents : sharing_of(node, output, input);
  if (sharing == Sharing::kNothing) return;
  const bool is_from_container = is_container(from->type()), is_to_container = is_container(to->type());
  const Locations given = all_of(from);
  if (makes_container(node)) return put_into(all_of(to), given);
  const bool takes_elements = is_from_container && (!is_to_container || sharing == Sharing::kContents);
  const Locations shared = takes_elements ? contents_of(given) : given;
  if (is_to_container && (!is_from_container || sharing == Sharing::kContents)) return put_into(all_of(to), shared);
  grow(to, shared);
}

void Aliases::visit_writes(const Node* node) {
  const auto by_call = knows_objects_ ? Writing::kNothing : writing_of_call(node);
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    const auto writing = writing_of(node, i);
    if (by_call == Writing::kContainer) write(containers_among(reached(all_of(node->input(i)))));
    if (by_call == Writing::kElements || writing == Writing::kElements) write(reached(all_of(node->input(i))));
    if (writing != Writing::kContainer) continue;
    const Locations containers = all_of(node->input(i));
    write(containers);
    // A value put into a list is part of the list from then on.
    for (size_t other = 0; other < node->inputs().size(); ++other) {
      if (other != i) put_into(containers, all_of(node->input(other)));
    }
  }
}

void Aliases::use(const Value* value) {
  if (!is_recording_) return;
  for (int location : all_of(value)) uses_.emplace_back(location, position_);
}

void Aliases::write(const Locations& locations) {
  note_write(locations);
  for (int location : locations) locations_[static_cast<size_t>(location)].is_written |= is_recording_;
}

// An assignment puts another tensor there, and leaves the memory of the old one as it is.
void Aliases::note_write(const Locations& locations) {
  if (!is_recording_) return;
  for (int location : locations) writes_.emplace_back(location, position_);
}

// Sets ----------------------------------------------------------------------------------------------------------------

int Aliases::set_of(int location) const {
  while (locations_[static_cast<size_t>(location)].set != location)
    location = locations_[static_cast<size_t>(location)].set;
  return location;
}

void Aliases::unite(int one, const Locations& others) {
  for (int other : others) locations_[static_cast<size_t>(set_of(other))].set = set_of(one);
}

void Aliases::unite_locations() {
  for (size_t i = 0; i < locations_.size(); ++i) locations_[i].set = static_cast<int>(i);
  for (const auto& [value, leaves] : values_) {
    for (const auto& leaf : leaves) {
      if (!leaf.empty()) unite(*leaf.begin(), leaf);
    }
  }
  for (const auto& [storage, locations] : storages_) unite(*locations.begin(), locations);
  for (const auto& [location, values] : stored_) unite(location, values);
  for (size_t i = 0; i < locations_.size(); ++i) locations_[i].set = set_of(static_cast<int>(i));
}

void Aliases::collect_sets() {
  for (const auto& location : locations_) {
    auto& set = sets_[location.set];
    set.is_attribute |= location.is_attribute;
    set.is_parameter |= location.is_parameter;
    for (int held : location.contents) set_contents_[location.set].insert(set_of(held));
  }
  for (const auto& [location, position] : uses_) {
    for (int reached : reached_sets({set_of(location)})) sets_[reached].uses.push_back(position);
  }
  for (const auto& [location, position] : writes_) sets_[set_of(location)].writes.push_back(position);
  for (auto& [number, set] : sets_) {
    sort(set.uses);
    sort(set.writes);
    if (!set.writes.empty()) written_.push_back(number);
  }
}

std::set<int> Aliases::reached_sets(std::vector<int> left) const {
  std::set<int> out;
  while (!left.empty()) {
    const int set = left.back();
    left.pop_back();
    if (!out.insert(set).second) continue;
    const auto contents = set_contents_.find(set);
    if (contents != set_contents_.end()) left.insert(left.end(), contents->second.begin(), contents->second.end());
  }
  return out;
}

// Results -------------------------------------------------------------------------------------------------------------

std::vector<int> Aliases::sets_of(const Value* value) const {
  const auto found = values_.find(value);
  if (found == values_.end()) return std::vector<int>(leaves_of(value->type()).size(), kNone);
  std::vector<int> out;
  for (const auto& leaf : found->second) out.push_back(leaf.empty() ? kNone : set_of(*leaf.begin()));
  return out;
}

std::set<int> Aliases::reached_from(const Value* value) const {
  std::vector<int> own;
  for (int set : sets_of(value)) {
    if (set != kNone) own.push_back(set);
  }
  return reached_sets(std::move(own));
}

bool Aliases::is_written(const Value* value) const {
  const auto found = values_.find(value);
  if (found == values_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](const Locations& leaf) {
    const auto locations = reached(leaf);
    return std::any_of(locations.begin(), locations.end(),
                       [&](int location) { return locations_[static_cast<size_t>(location)].is_written; });
  });
}

std::set<SlotKey> Aliases::written_attributes() const {
  std::set<SlotKey> out = assigned_;
  for (const auto& location : locations_) {
    if (location.is_written && location.slot.first != nullptr) out.insert(location.slot);
  }
  return out;
}

Aliases::WrittenArguments Aliases::written_arguments() const {
  WrittenArguments out;
  for (const auto& location : locations_) {
    if (!location.is_argument || !location.is_written) continue;
    (location.is_container ? out.containers : out.tensors) = true;
  }
  return out;
}

ForwardEffects scan_forward_effects(const FlatGraph& flat) {
  const Aliases aliases(flat);
  const auto arguments = aliases.written_arguments();
  const auto reads_unknown_module = [&](const Node* node) {
    return node->kind() == c10::prim::GetAttr && node->input(0)->type()->is_module() &&
           flat.objects.count(node->input(0)) == 0;
  };
  const auto* block = flat.graph->block();
  return {.is_analyzable = !any_node(block, escapes_graph) && !any_node(block, reads_unknown_module),
          .changes_tensors = arguments.tensors,
          .changes_containers = arguments.containers,
          .calls_autograd = any_node(block, computes_gradients),
          .written = aliases.written_attributes()};
}

}  // namespace dslaunch::runtime::model::graph
