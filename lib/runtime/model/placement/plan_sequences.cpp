#include "runtime/model/placement/plan_sequences.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace dslaunch::runtime::model::placement {
namespace {

using torch::jit::Node;
using torch::jit::Value;
using Dims = UnitPositions::Dims;

// Of the tensors of a result; of a tuple of other things none.
std::vector<at::Tensor> result_tensors(const c10::IValue* result) {
  if (result == nullptr) return {};
  if (result->isTensor()) return {result->toTensor()};
  if (!result->isTuple()) return {};
  std::vector<at::Tensor> out;
  for (const auto& element : result->toTupleRef().elements()) {
    if (!element.isTensor()) return {};
    out.push_back(element.toTensor());
  }
  return out;
}

// All tensors that a call returns.
std::vector<const Value*> returned_by(const Node* call) {
  std::vector<const Value*> out{call->output()};
  if (call->output()->type()->kind() != c10::TypeKind::TupleType) return out;
  for (const auto& use : call->output()->uses()) {
    out.insert(out.end(), use.user->outputs().begin(), use.user->outputs().end());
  }
  return out;
}

class Sequences {
 public:
  using UnitOf = std::function<std::optional<size_t>(const Node*)>;
  Sequences(const std::vector<SequenceGraph>& graphs, int ranks, const UnitOf& unit_of)
      : graphs_(graphs), ranks_(ranks), unit_of_(unit_of) {}

  std::vector<SequencePlan> run() {
    std::vector<SequencePlan> out(graphs_.size());
    for (size_t i = 1; i < graphs_.size(); ++i) out[i] = plan_unit(i);
    out[0].propagated = walk(0, {}, [&](const Node* call) -> const UnitPositions* {
      const auto unit = unit_of_(call);
      return unit ? &out[*unit].positions : nullptr;
    });
    return out;
  }

 private:
  Propagated walk(size_t number, const UnitPositions& own, const FindUnit& units) const {
    const auto& [graph, chosen] = graphs_[number];
    return propagate_positions(graph, chosen.views, chosen.decisions, gathered_values(chosen.propagated), ranks_, own,
                               units);
  }

  SequencePlan plan_unit(size_t number) const {
    SequencePlan out{.propagated = {}, .positions = {arguments_like_results(number), {}}};
    const auto no_units = [](const Node*) { return nullptr; };
    for (bool has_changed = true; has_changed;) {
      out.propagated = walk(number, out.positions, no_units);
      has_changed = false;
      for (size_t i = 0; i < out.positions.arguments.size(); ++i) {
        auto& dim = out.positions.arguments[i];
        if (!dim || works_on_positions(number, i, out.propagated)) continue;
        dim.reset();
        has_changed = true;
      }
    }
    out.positions.results = results_of(number, out.propagated, out.positions);
    return out;
  }

  // What may run from unit to unit: arguments of the shape of a result.
  Dims arguments_like_results(size_t number) const {
    const auto& graph = graphs_[number].graph;
    const auto inputs = graph.flat.graph->inputs().slice(1);
    Dims out(inputs.size());
    if (!can_take_positions(number)) return out;
    const auto results = result_tensors(graph.known.find(graph.flat.graph->outputs().at(0)));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const c10::IValue* known = graph.known.find(inputs[i]);
      if (known == nullptr || !known->isTensor() || !known->toTensor().defined()) continue;
      const at::Tensor tensor = known->toTensor();
      const bool is_like_result = std::any_of(results.begin(), results.end(), [&](const at::Tensor& result) {
        return result.defined() && result.sizes() == tensor.sizes();
      });
      const bool is_fit = tensor.is_floating_point() && graph.written.count(inputs[i]) == 0 && is_like_result;
      if (is_fit) out[i] = positions_dim(tensor.sizes().vec(), ranks_);
    }
    return out;
  }

  // Whether all calls of the unit pass and return what can be converted.
  bool can_take_positions(size_t number) const {
    const auto& root = graphs_[0].graph;
    const auto& unit = graphs_[number].graph;
    return std::all_of(root.flat.unit_calls.begin(), root.flat.unit_calls.end(), [&](const auto& entry) {
      const Node* call = entry.first;
      const auto called = unit_of_(call);
      if (!called || *called != number) return true;
      if (call->owningBlock() != root.flat.graph->block() || call->outputs().size() != 1) return false;
      const auto returned = returned_by(call);
      const bool any_written = std::any_of(returned.begin(), returned.end(),
                                           [&](const Value* value) { return root.written.count(value) > 0; });
      const bool is_unpacked = std::all_of(call->output()->uses().begin(), call->output()->uses().end(),
                                           [](auto& use) { return use.user->kind() == c10::prim::TupleUnpack; });
      const bool is_tuple = call->output()->type()->kind() == c10::TypeKind::TupleType;
      return !any_written && (is_unpacked || !is_tuple) && passes_alike(call, unit);
    });
  }

  // The shapes for which the unit was analyzed; nothing that is written in place.
  bool passes_alike(const Node* call, const PlacedGraph& unit) const {
    const auto& root = graphs_[0].graph;
    const auto inputs = unit.flat.graph->inputs();
    if (call->inputs().size() != inputs.size()) return false;
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (root.known.sizes(call->input(i)) != unit.known.sizes(inputs[i])) return false;
      if (root.written.count(call->input(i)) > 0) return false;
    }
    return true;
  }

  bool works_on_positions(size_t number, size_t argument, const Propagated& propagated) const {
    const Value* input = graphs_[number].graph.flat.graph->inputs().at(argument + 1);
    return std::any_of(input->uses().begin(), input->uses().end(), [&](const torch::jit::Use& use) {
      const auto found = propagated.outcomes.find(use.user);
      if (found == propagated.outcomes.end() || use.offset >= found->second.reads.size()) return false;
      const auto& read = found->second.reads[use.offset];
      return !read.empty() && read[0].is_of_positions();
    });
  }

  // Those of the length that the unit was given.
  Dims results_of(size_t number, const Propagated& propagated, const UnitPositions& own) const {
    const Value* output = graphs_[number].graph.flat.graph->outputs().at(0);
    const auto held = propagated.placements.find(output);
    if (!own.takes_any() || held == propagated.placements.end()) return {};
    Dims out;
    for (const Placement& placement : held->second) {
      const bool is_given = placement.is_of_positions() && length_of_positions(placement) == 0;
      out.push_back(is_given ? std::optional(placement.dim) : std::nullopt);
    }
    return out;
  }

  const std::vector<SequenceGraph>& graphs_;
  const int ranks_;
  const UnitOf& unit_of_;
};

}  // namespace

std::vector<SequencePlan> plan_sequences(const std::vector<SequenceGraph>& graphs, int ranks,
                                         const std::function<std::optional<size_t>(const Node*)>& unit_of) {
  return Sequences(graphs, ranks, unit_of).run();
}

}  // namespace dslaunch::runtime::model::placement
