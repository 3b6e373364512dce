#include "runtime/model/stages/stage_needs.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/format.hpp"
#include "runtime/model/graph/memory_types.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Value;

bool can_be_carried(const c10::TypePtr& type) {
  const auto leaves = graph::leaves_of(type);
  return std::all_of(leaves.begin(), leaves.end(),
                     [](const auto& leaf) { return leaf->kind() == c10::TypeKind::TensorType || is_number(leaf); });
}

// Of a branch (that of nn.ReLU on `inplace`) the operator that computes the value on the first side that has one.
const torch::jit::Node* computing_node(const Value* value) {
  const auto* node = value->node();
  if (node->kind() != c10::prim::If) return node;
  for (const auto* side : node->blocks()) {
    const auto* inner = computing_node(side->outputs()[value->offset()]);
    if (inner->kind() != c10::prim::Uninitialized) return inner;
  }
  return node;
}

// Follows values back to where they come from.
class NeedSearch {
 public:
  using Writers = std::map<int, std::vector<size_t>>;

  NeedSearch(const FlatForward& flat, const graph::Aliases& memory, const ValueKinds& kinds, const Writers& writers,
             const StageRange& range)
      : flat_(flat), memory_(memory), kinds_(kinds), writers_(writers), range_(range) {}

  StageNeeds run() {
    for (size_t i = range_.begin; i < range_.end; ++i) {
      if (kinds_.has_effect(i)) include(i);
    }
    for (Value* value : range_.live_out) need(value, range_.end);
    while (!left_.empty()) {
      const size_t position = left_.back();
      left_.pop_back();
      for (Value* value : kinds_.reads(position)) need(value, position);
    }
    StageNeeds out;
    out.nodes.assign(included_.begin(), included_.end());
    out.inputs = std::move(inputs_);
    for (const auto& [defined, value] : carried_) out.carried_in.push_back(value);
    return out;
  }

 private:
  void include(size_t position) {
    if (included_.insert(position).second) left_.push_back(position);
  }

  // `reader`: the position of the node that reads it.
  void need(Value* value, size_t reader) {
    const auto found = flat_.position.find(value->node());
    if (found == flat_.position.end()) return need_argument(value, reader);
    const size_t position = found->second;
    const bool is_here = position >= range_.begin;
    if (!is_here && is_carried(value, position)) {
      carried_[{position, value->offset()}] = value;
      return;
    }
    include(position);
    include_writers(value, reader);
  }

  void need_argument(Value* value, size_t reader) {
    if (value->offset() == 0) return;  // self
    if (range_.begin > 0 && kinds_.of(value) == ValueKind::kCarried) {
      carried_[{0, value->offset()}] = value;
      return;
    }
    inputs_.insert(value->offset() - 1);
    include_writers(value, reader);
  }

  bool is_carried(const Value* value, size_t position) const {
    switch (kinds_.of_node(position)) {
      case ValueKind::kCarried:
        return !kinds_.is_structure(position);
      case ValueKind::kSize:
        return is_number(value->type());
      default:
        return false;
    }
  }

  // What is computed again includes the changes that were made in place until `reader`.
  void include_writers(const Value* value, size_t reader) {
    if (writers_.empty()) return;
    for (int set : memory_.reached_from(value)) {
      const auto found = writers_.find(set);
      if (found == writers_.end()) continue;
      for (size_t writer : found->second) {
        if (writer < reader) include(writer);
      }
    }
  }

  const FlatForward& flat_;
  const graph::Aliases& memory_;
  const ValueKinds& kinds_;
  const Writers& writers_;
  const StageRange& range_;
  std::set<size_t> included_, inputs_;
  std::vector<size_t> left_;
  std::map<std::pair<size_t, size_t>, Value*> carried_;  // by position and offset
};

}  // namespace

StageSplitter::StageSplitter(const FlatForward& flat, const graph::Aliases& memory, const ValueKinds& kinds)
    : flat_(flat), memory_(memory), kinds_(kinds) {
  for (int set : memory.written()) {
    for (size_t writer : memory.set(set).writes) {
      if (kinds.of_node(writer) != ValueKind::kCarried) replicable_writers_[set].push_back(writer);
    }
  }
}

Result<StageNeeds> StageSplitter::needs_of(const StageRange& range) const {
  auto needs = NeedSearch(flat_, memory_, kinds_, replicable_writers_, range).run();
  for (const Value* value : needs.carried_in) {
    if (!can_be_carried(value->type())) {
      return Failure{
          fmt::format("a value of type {} would have to be carried ({})", value->type()->repr_str(), describe(value))};
    }
  }
  // Copies of one memory would not follow each other's changes.
  for (int number : memory_.written()) {
    const auto& set = memory_.set(number);
    if (set.writes.back() < range.begin) continue;
    Value* live = nullptr;
    size_t count = 0;
    for (Value* value : needs.carried_in) {
      for (int of_leaf : memory_.sets_of(value)) {
        if (of_leaf != number) continue;
        live = value;
        count += 1;
      }
    }
    if (count > 1) {
      return Failure{fmt::format("{} would be carried, and its memory is changed in place later under another name",
                                 describe(live))};
    }
    const bool is_written_here = std::any_of(set.writes.begin(), set.writes.end(), [&](size_t writer) {
      return writer >= range.begin && writer < range.end;
    });
    if (live != nullptr && is_written_here) needs.copied.insert(live);
  }
  return needs;
}

std::string StageSplitter::describe(const Value* value) const {
  const auto found = flat_.position.find(value->node());
  if (found == flat_.position.end()) return fmt::format("input '{}'", value->debugName());
  const size_t position = found->second;
  const auto layer = std::find_if(flat_.layers.begin(), flat_.layers.end(), [&](const FlatLayer& candidate) {
    return candidate.begin <= position && position < candidate.end;
  });
  if (layer != flat_.layers.end()) return fmt::format("output of '{}'", layer->path);
  const auto before = std::find_if(flat_.layers.rbegin(), flat_.layers.rend(),
                                   [&](const FlatLayer& candidate) { return candidate.end <= position; });
  const std::string name = computing_node(value)->kind().toUnqualString();
  return before == flat_.layers.rend() ? name : fmt::format("{} after '{}'", name, before->path);
}

}  // namespace dslaunch::runtime::model::stages
