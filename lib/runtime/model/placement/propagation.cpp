#include "runtime/model/placement/propagation.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/placement/operator_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool any_placed(const std::vector<Placements>& all) {
  return !std::all_of(all.begin(), all.end(), is_whole);
}

// Whether another tensor is read than the value itself. `has_gradient`: reading it in part sums that over the ranks.
bool is_converted(const Placements& held, const Placements& read, bool has_gradient) {
  for (size_t i = 0; i < read.size(); ++i) {
    const Placement own = i < held.size() ? held[i] : Placement();
    if (own.kind != read[i].kind || (own.is_whole() && has_gradient)) return true;
  }
  return false;
}

bool is_of_integers(const c10::IValue* known) {
  return known != nullptr && known->isTensor() && known->toTensor().defined() &&
         !known->toTensor().is_floating_point() && !known->toTensor().is_complex();
}

bool is_sharded(const Placements& held) {
  return std::any_of(held.begin(), held.end(), [](const auto& one) { return one.is_sharded(); });
}

class Walk {
 public:
  Walk(const PlacedGraph& graph, const ParameterViews& views, const Decisions& decisions,
       const GatheredValues& gathered, int ranks)
      : graph_(graph), decisions_(decisions), to_gather_(gathered), state_{graph.known, views, ranks, {}} {}

  Propagated run() {
    for (const Node* node : graph_.flat.graph->nodes()) visit(node);
    for (const Value* output : graph_.flat.graph->outputs()) end(output);
    return {std::move(outcomes_), std::move(state_.placements), std::move(gathered_)};
  }

 private:
  void visit(const Node* node) {
    if (node->kind() == c10::prim::GetAttr) return place_parameter(node);
    for (const auto* inner : node->blocks()) {
      graph::for_each_node(inner, [&](const Node* other) {
        for (const Value* input : other->inputs()) require_whole(input, "a branch or loop reads it");
      });
      for (const Value* output : inner->outputs()) require_whole(output, "a branch or loop reads it");
    }
    const Operation operation(*node, state_);
    if (!operation.any_sharded() && !operation.any_partial()) return;
    Outcome outcome = outcome_of(node, operation);
    for (size_t i = 0; i < outcome.results.size(); ++i) place(node->output(i), outcome.results[i]);
    outcomes_.emplace(node, std::move(outcome));
  }

  Outcome outcome_of(const Node* node, const Operation& operation) const {
    try {
      Outcome outcome = rule_of(node, operation);
      refuse_converted_writes(node, operation, outcome);
      return outcome;
    } catch (Refuse& refusal) {
      if (refusal.or_of.empty()) refusal.values = gatherable(node, refusal.of);
      throw;
    }
  }

  void place(const Value* value, const Placements& held) {
    if (is_whole(held)) return;
    if (to_gather_.count(value) > 0 && held[0].is_sharded() && held[0].groups == 1) {
      gathered_.emplace(value, held[0]);
    } else {
      state_.placements[value] = held;
    }
  }

  // The operands that are parts of these parameters' results; empty: not all of them can be gathered.
  std::vector<const Value*> gatherable(const Node* node, const Origins& of) const {
    std::vector<const Value*> out;
    for (const Value* input : node->inputs()) {
      const auto held = state_.placements.find(input);
      if (held == state_.placements.end() || !is_sharded(held->second)) continue;
      if (input->type()->kind() != c10::TypeKind::ListType) {
        if (!meets(origins_of(held->second[0].segments), of)) continue;
        if (!can_gather(input, held->second[0])) return {};
        out.push_back(input);
        continue;
      }
      if (input->node()->kind() != c10::prim::ListConstruct) return {};
      for (const Value* element : gatherable(input->node(), of)) out.push_back(element);
    }
    return out;
  }

  // What a GEMM or something behind it makes: not a parameter, and not what others write to.
  bool can_gather(const Value* value, const Placement& held) const {
    return held.groups == 1 && graph_.written.count(value) == 0 && state_.parameters.count(value) == 0 &&
           graph_.known.sizes(value) && !is_of_integers(graph_.known.find(value));
  }

  void place_parameter(const Node* node) {
    const auto read = graph_.reads.find(node->output());
    if (read == graph_.reads.end()) return;
    const auto decision = decisions_.find(read->second);
    if (decision != decisions_.end()) state_.placements[node->output()] = {decision->second};
  }

  Outcome rule_of(const Node* node, const Operation& operation) const {
    if (graph_.flat.unit_calls.count(node) > 0) return operation.whole("another unit reads it");
    if (!node->blocks().empty()) return operation.whole("a branch or loop reads it");
    return apply_rule(operation);
  }

  // A converted value is another tensor, which does not see what is written to the value.
  void refuse_converted_writes(const Node* node, const Operation& operation, const Outcome& outcome) const {
    const bool is_placed = any_placed(outcome.results);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (graph_.written.count(node->input(i)) == 0) continue;
      const bool has_gradient = is_placed && !is_of_integers(graph_.known.find(node->input(i)));
      if (is_converted(operation.placements(i), outcome.reads[i], has_gradient)) {
        operation.refuse("a value that is changed in place would be read in part");
      }
    }
  }

  void require_whole(const Value* value, const std::string& why) const {
    const auto found = state_.placements.find(value);
    if (found == state_.placements.end()) return;
    Origins of;
    for (const Placement& placement : found->second) of = united(of, origins_of(placement));
    if (!is_sharded(found->second) && graph_.written.count(value) == 0) return;
    const bool is_tensor = graph_.known.sizes(value) && is_sharded(found->second);
    throw Refuse{of,
                 why,
                 {},
                 is_tensor && can_gather(value, found->second[0]) ? std::vector{value} : std::vector<const Value*>()};
  }

  void end(const Value* output) const { require_whole(output, "the result of a unit or of the model would be split"); }

  const PlacedGraph& graph_;
  const Decisions& decisions_;
  const GatheredValues& to_gather_;
  WalkState state_;
  std::unordered_map<const Value*, Placement> gathered_;
  std::unordered_map<const Node*, Outcome> outcomes_;
};

// The dims of the first operand in the order of the result; empty: it is not the same elements.
std::vector<int64_t> order_of(const Node* node, const KnownValues& known, size_t dims) {
  std::vector<int64_t> order(dims);
  std::iota(order.begin(), order.end(), int64_t{0});
  const std::string_view kind = node->kind().toQualString();
  const auto number = [&](size_t input) {
    const c10::IValue* value = known.find(node->input(input));
    return value != nullptr && value->isInt() ? wrapped(value->toInt(), dims) : 0;
  };
  if (kind == "aten::t" || kind == "aten::numpy_T") {
    std::reverse(order.begin(), order.end());
  } else if (kind == "aten::transpose") {
    std::swap(order.at(static_cast<size_t>(number(1))), order.at(static_cast<size_t>(number(2))));
  } else if (kind == "aten::permute") {
    const c10::IValue* value = known.find(node->input(1));
    if (value == nullptr || !value->isIntList()) return {};
    order = value->toIntVector();
    for (int64_t& dim : order) dim = wrapped(dim, dims);
  } else if (kind != "aten::to" && kind != "aten::contiguous" && kind != "aten::clone" && kind != "aten::alias" &&
             kind != "dslaunch::match_type" && kind != "dslaunch::narrow_fp32") {
    return {};
  }
  return order;
}

}  // namespace

Propagated propagate(const PlacedGraph& graph, const ParameterViews& views, const Decisions& decisions,
                     const GatheredValues& gathered, int ranks) {
  return Walk(graph, views, decisions, gathered, ranks).run();
}

GatheredValues gathered_values(const Propagated& propagated) {
  GatheredValues out;
  for (const auto& [value, held] : propagated.gathered) out.insert(value);
  return out;
}

ParameterViews parameter_views(const PlacedGraph& graph) {
  ParameterViews out;
  for (const Node* node : graph.flat.graph->nodes()) {
    if (const auto read = node->outputs().size() == 1 ? graph.reads.find(node->output()) : graph.reads.end();
        read != graph.reads.end()) {
      const auto sizes = graph.known.sizes(node->output());
      if (!sizes) continue;
      ParameterView view{read->second, std::vector<int64_t>(sizes->size())};
      std::iota(view.dims.begin(), view.dims.end(), int64_t{0});
      out.emplace(node->output(), std::move(view));
      continue;
    }
    if (node->inputs().empty() || node->outputs().size() != 1) continue;
    const auto from = out.find(node->input(0));
    if (from == out.end()) continue;
    ParameterView view{from->second.parameter, {}};
    for (const int64_t dim : order_of(node, graph.known, from->second.dims.size())) {
      view.dims.push_back(from->second.dims.at(static_cast<size_t>(dim)));
    }
    if (!view.dims.empty()) out.emplace(node->output(), std::move(view));
  }
  return out;
}

}  // namespace dslaunch::runtime::model::placement
