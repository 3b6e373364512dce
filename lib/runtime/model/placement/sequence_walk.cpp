#include "runtime/model/placement/sequence_walk.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/placement/operator_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool has_positions(const Placements& held) {
  return std::any_of(held.begin(), held.end(), [](const auto& one) { return one.is_of_positions(); });
}

bool any_positions(const std::vector<Placements>& all) {
  return std::any_of(all.begin(), all.end(), has_positions);
}

// All positions of a dim, in their order.
bool are_plain(const Placement& placement) {
  return placement.is_of_positions() && placement.groups == 1 && placement.segments.size() == 1 &&
         placement.segments[0].width == 1;
}

// A GEMM of positions that has more features than they have: its input is gathered at less cost than its result.
bool widens(const Operation& op) {
  const auto form = gemm_form(op);
  return form && op.result_sizes().back() > op.sizes(form->factor).back();
}

// Whether each element of the lists that a node makes is read by itself.
bool is_taken_apart(const Value* list) {
  return std::all_of(list->uses().begin(), list->uses().end(), [](const torch::jit::Use& use) {
    return use.user->kind() == c10::prim::ListUnpack || use.user->kind() == c10::aten::__getitem__;
  });
}

class SequenceWalk {
 public:
  SequenceWalk(const PlacedGraph& graph, const ParameterViews& views, const Decisions& decisions,
               const GatheredValues& gathered, int ranks, const FindUnit& units)
      : graph_(graph), views_(views), decisions_(decisions), to_gather_(gathered), ranks_(ranks), units_(units) {}

  Propagated run(const UnitPositions& own) {
    takes_length_ = own.takes_any();
    for (size_t i = 0; i < own.arguments.size(); ++i) {
      if (!own.arguments[i]) continue;
      const Value* input = graph_.flat.graph->inputs().at(i + 1);
      if (out_.lengths.empty()) out_.lengths.emplace_back();
      const auto dim = *own.arguments[i];
      out_.placements[input] = {of_positions(dim, sizes_of(input).at(static_cast<size_t>(dim)), 0)};
    }
    for (const Node* node : graph_.flat.graph->nodes()) visit(node);
    return std::move(out_);
  }

 private:
  // What is tried of an operand that is not whole.
  enum class Reading : uint8_t {
    kAsHeld,
    kPositions,     // sums become positions where they can, else whole
    kAllPositions,  // positions become whole
  };

  void visit(const Node* node) {
    if (node->kind() == c10::prim::GetAttr) return place_parameter(node);
    if (const UnitPositions* unit = unit_of(node)) return call(node, *unit);
    bool any_sum = false, any_part = false, any_placed = false;
    for (const Value* input : node->inputs()) {
      for (const Placement& placement : held_by(input)) {
        any_sum |= placement.is_partial();
        any_part |= placement.is_of_positions();
        any_placed |= !placement.is_whole();
      }
    }
    if (!any_placed) return;
    if (!node->blocks().empty() || graph_.flat.unit_calls.count(node) > 0) return take(node, read_whole(node));
    if (node->kind() == c10::prim::TupleConstruct && is_result(node)) return take(node, tuple_of(node));
    if (!any_part) {
      Outcome outcome = apply(node, Reading::kAsHeld);
      if (!any_sum || !reads_sum_whole(node, outcome)) return take(node, std::move(outcome));
    }
    if (any_sum || any_part) {
      if (auto outcome = attempt(node)) return take(node, *std::move(outcome));
    }
    take(node, apply(node, Reading::kAllPositions));
  }

  const UnitPositions* unit_of(const Node* node) const {
    const bool is_call = graph_.flat.unit_calls.count(node) > 0;
    const UnitPositions* unit = is_call ? units_(node) : nullptr;
    return unit != nullptr && unit->takes_any() ? unit : nullptr;
  }

  void place_parameter(const Node* node) {
    const auto read = graph_.reads.find(node->output());
    if (read == graph_.reads.end()) return;
    const auto decision = decisions_.find(read->second);
    if (decision != decisions_.end()) out_.placements[node->output()] = {decision->second};
  }

  void take(const Node* node, Outcome outcome) {
    for (size_t i = 0; i < outcome.results.size(); ++i) {
      const Placements& held = outcome.results[i];
      if (is_whole(held)) continue;
      const bool is_part = held[0].is_sharded() && !held[0].is_of_positions() && held[0].groups == 1;
      if (is_part && to_gather_.count(node->output(i)) > 0) {
        out_.gathered.emplace(node->output(i), held[0]);
      } else {
        out_.placements[node->output(i)] = held;
      }
    }
    out_.outcomes.emplace(node, std::move(outcome));
  }

  void call(const Node* node, const UnitPositions& unit) {
    Outcome outcome = read_whole(node);
    for (size_t i = 0; i < unit.arguments.size(); ++i) {
      if (!unit.arguments[i]) continue;
      const Value* argument = node->input(i + 1);
      const int64_t dim = *unit.arguments[i], size = sizes_of(argument).at(static_cast<size_t>(dim));
      const auto& held = held_by(argument);
      const size_t length = has_positions(held) ? length_of_positions(held[0]) : length_of(argument, dim);
      outcome.reads[i + 1] = {of_positions(dim, size, length)};
      if (!outcome.passes_length) outcome.passes_length = length;
    }
    const c10::IValue* result = graph_.known.find(node->output());
    for (size_t i = 0; i < unit.results.size(); ++i) {
      const auto& dim = unit.results[i];
      const at::Tensor tensor = result->isTensor() ? result->toTensor() : at::Tensor();
      const at::Tensor element = !dim || tensor.defined() ? tensor : result->toTupleRef().elements().at(i).toTensor();
      outcome.results[0].push_back(dim ? of_positions(*dim, element.size(*dim), *outcome.passes_length) : Placement());
    }
    take(node, std::move(outcome));
  }

  Outcome read_whole(const Node* node) const {
    Outcome out;
    for (const Value* input : node->inputs()) out.reads.emplace_back(held_by(input).size());
    out.results.resize(node->outputs().size());
    return out;
  }

  bool is_result(const Node* node) const {
    return graph_.flat.graph->outputs().size() == 1 && graph_.flat.graph->outputs()[0] == node->output();
  }

  // Of the results of a unit positions of the length that it was given stay what they are.
  Outcome tuple_of(const Node* node) const {
    Outcome out = read_whole(node);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const auto& held = held_by(node->input(i));
      const bool is_part = takes_length_ && held.size() == 1 && are_plain(held[0]) && length_of_positions(held[0]) == 0;
      if (is_part) out.reads[i] = held;
      out.results[0].push_back(is_part ? held[0] : Placement());
    }
    return out;
  }

  Outcome apply(const Node* node, Reading reading) {
    WalkState shown{graph_.known, views_, ranks_, {}};
    for (const Value* input : node->inputs()) {
      Placements placements = held_by(input);
      for (size_t i = 0; i < placements.size(); ++i) {
        const bool is_element =
            input->type()->kind() == c10::TypeKind::ListType && input->node()->kind() == c10::prim::ListConstruct;
        const Value* value = is_element ? input->node()->input(i) : input;
        placements[i] = shown_as(value, placements[i], reading);
      }
      if (!placements.empty()) shown.placements[input] = std::move(placements);
    }
    const Operation operation(*node, shown);
    if (operation.any_sharded() || operation.any_partial()) return apply_rule(operation);
    return read_whole(node);
  }

  Placement shown_as(const Value* value, const Placement& held, Reading reading) {
    if (reading == Reading::kAsHeld) return held;
    if (reading == Reading::kAllPositions) return held.is_of_positions() ? Placement() : held;
    if (!held.is_partial()) return held;
    const auto known = graph_.known.sizes(value);
    const auto dim = known && graph_.written.count(value) == 0 ? positions_dim(*known, ranks_) : std::nullopt;
    if (!dim) return {};
    return of_positions(*dim, known->at(static_cast<size_t>(*dim)), length_of(value, *dim));
  }

  // The node on positions; empty: it does not work on them.
  std::optional<Outcome> attempt(const Node* node) {
    for (const Value* input : node->inputs()) {
      if (has_positions(held_by(input)) && graph_.written.count(input) > 0) return std::nullopt;
    }
    try {
      Outcome outcome = apply(node, Reading::kPositions);
      if (!is_of_positions(node, outcome)) return std::nullopt;
      return outcome;
    } catch (const Coarsen&) {
    } catch (const Divide&) {
    } catch (const Shard&) {
    } catch (const Refuse&) {
    }
    return std::nullopt;
  }

  bool is_of_positions(const Node* node, const Outcome& outcome) const {
    if (!any_positions(outcome.reads)) return false;
    if (node->kind() == c10::prim::ListConstruct) return true;
    if (outcome.rewrite != Rewrite::kNone && outcome.rewrite != Rewrite::kWholeSizes) return false;
    const WalkState nothing_placed{graph_.known, views_, ranks_, {}};
    if (widens(Operation(*node, nothing_placed))) return false;
    for (size_t i = 0; i < outcome.results.size(); ++i) {
      const Value* output = node->output(i);
      const bool is_fine = std::all_of(outcome.results[i].begin(), outcome.results[i].end(), [](const auto& placement) {
        return placement.is_whole() || are_plain(placement);
      });
      if (!is_fine) return false;
      if (!has_positions(outcome.results[i])) continue;
      if (graph_.written.count(output) > 0) return false;
      if (output->type()->kind() == c10::TypeKind::ListType && !is_taken_apart(output)) return false;
    }
    return true;
  }

  // Whether a sum over the ranks is made whole for the node.
  bool reads_sum_whole(const Node* node, const Outcome& outcome) const {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const Placements& held = held_by(node->input(i));
      for (size_t k = 0; k < held.size() && k < outcome.reads[i].size(); ++k) {
        if (held[k].is_partial() && !outcome.reads[i][k].is_partial()) return true;
      }
    }
    return false;
  }

  size_t length_of(const Value* value, int64_t dim) {
    const auto [number, is_new] = length_of_value_.try_emplace(value, out_.lengths.size());
    if (is_new) out_.lengths.push_back({value, dim});
    return number->second;
  }

  const Placements& held_by(const Value* value) const {
    static const Placements kNone;
    const auto found = out_.placements.find(value);
    return found == out_.placements.end() ? kNone : found->second;
  }
  Sizes sizes_of(const Value* value) const { return graph_.known.sizes(value).value_or(Sizes()); }

  const PlacedGraph& graph_;
  const ParameterViews& views_;
  const Decisions& decisions_;
  const GatheredValues& to_gather_;
  const int ranks_;
  const FindUnit& units_;
  bool takes_length_ = false;
  Propagated out_;
  std::map<const Value*, size_t> length_of_value_;
};

}  // namespace

bool UnitPositions::takes_any() const {
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& dim) { return dim.has_value(); });
}

Propagated propagate_positions(const PlacedGraph& graph, const ParameterViews& views, const Decisions& decisions,
                               const GatheredValues& gathered, int ranks, const UnitPositions& own,
                               const FindUnit& units) {
  return SequenceWalk(graph, views, decisions, gathered, ranks, units).run(own);
}

std::optional<int64_t> positions_dim(const Sizes& sizes, int ranks) {
  if (sizes.size() != 3) return std::nullopt;
  const int64_t dim = sizes[1] == kAnalyzedBatch && sizes[0] != kAnalyzedBatch ? 0 : 1;
  return sizes[static_cast<size_t>(dim)] < ranks ? std::nullopt : std::optional(dim);
}

}  // namespace dslaunch::runtime::model::placement
