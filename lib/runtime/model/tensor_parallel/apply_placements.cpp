#include "runtime/model/tensor_parallel/apply_placements.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/graph/saved_graphs.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/tensor_parallel/tensor_operators.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

constexpr char kLengthArgument[] = "whole_length";  // of a unit that takes positions: how many all ranks have

using placement::GraphPlan;
using placement::NumberEdit;
using placement::Outcome;
using placement::Placement;
using placement::Placements;
using placement::Rewrite;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
using torch::jit::WithInsertPoint;

// Of the floating type, and made of something that is trained, by a unit too: what backward may come back to.
std::unordered_set<const Value*> find_differentiable(const GraphPlan& plan) {
  std::unordered_set<const Value*> out;
  const auto is_floating = [&](const Value* value) {
    const c10::IValue* known = plan.known.find(value);
    return known == nullptr || !known->isTensor() || !known->toTensor().defined() ||
           known->toTensor().is_floating_point();
  };
  for (const Value* input : plan.flat.graph->inputs()) {
    if (is_floating(input)) out.insert(input);
  }
  for (const Node* node : plan.flat.graph->nodes()) {
    bool follows = node->kind() == c10::prim::CallMethod || !node->blocks().empty();
    if (node->kind() == c10::prim::GetAttr) {
      const auto owner = plan.flat.objects.find(node->input(0));
      const auto held =
          owner == plan.flat.objects.end() ? c10::IValue() : owner->second->getAttr(node->s(c10::attr::name));
      follows = held.isTensor() && held.toTensor().defined() && held.toTensor().requires_grad();
    } else if (node->kind() != c10::aten::detach) {
      follows |= std::any_of(node->inputs().begin(), node->inputs().end(),
                             [&](const Value* input) { return out.count(input) > 0; });
    }
    if (!follows) continue;
    for (const Value* output : node->outputs()) {
      if (is_floating(output)) out.insert(output);
    }
  }
  return out;
}

class GraphEdit {
 public:
  GraphEdit(GraphPlan& plan, const TensorGroupPtr& group)
      : plan_(plan),
        group_(group),
        graph_(*plan.flat.graph),
        rank_(static_cast<size_t>(group->rank())),
        placements_(plan.chosen.propagated.placements),
        differentiable_(find_differentiable(plan)),
        lengths_(plan.chosen.propagated.lengths) {}

  void run() {
    if (plan_.positions.takes_any()) {
      length_argument_ = graph_.addInput(kLengthArgument)->setType(c10::IntType::get());
    }
    const std::vector<Node*> nodes(graph_.nodes().begin(), graph_.nodes().end());
    old_.insert(nodes.begin(), nodes.end());
    const auto& gathered = plan_.chosen.propagated.gathered;
    for (Node* node : nodes) {  // in an order that is the same on all ranks
      for (Value* output : node->outputs()) {
        if (const auto found = gathered.find(output); found != gathered.end()) gather(output, found->second);
      }
    }
    for (Node* node : nodes) {
      const auto found = plan_.chosen.propagated.outcomes.find(node);
      if (found != plan_.chosen.propagated.outcomes.end()) {
        edit(node, found->second);
      } else if (!node->blocks().empty()) {
        read_whole_inside(node);
      }
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (!returns_positions()) graph_.block()->replaceOutput(i, made_whole(graph_.outputs()[i]));
    }
    give_calls();
  }

 private:
  // New nodes belong to the call of the one before them.
  void give_calls() {
    std::optional<size_t> call;
    for (const Node* node : graph_.nodes()) {
      auto& calls = plan_.flat.call_of;
      if (old_.count(node) == 0 && call) calls.insert_or_assign(node, *call);
      const auto own = calls.find(node);
      call = own == calls.end() ? std::nullopt : std::optional(own->second);
    }
  }

  void edit(Node* node, const Outcome& outcome) {
    read_operands(node, outcome);
    read_whole_inside(node);
    if (outcome.passes_length) node->addInput(length(*outcome.passes_length));
    for (const NumberEdit& number : outcome.edits) edit_number(node, number);
    switch (outcome.rewrite) {
      case Rewrite::kNone:
        if (outcome.draws) replace_by_own_draws(node);
        return;
      case Rewrite::kLateBias:
        DSL_CHECK(false, "a plan separates biases from GEMMs that sum over the ranks");
        return;
      case Rewrite::kWholeSizes:
        return keep_whole_sizes(node, outcome);
      case Rewrite::kUnequalPieces:
        return split_unequally(node, outcome);
      case Rewrite::kEmbeddingOfSlice:
        return look_up_own_rows(node, outcome);
      case Rewrite::kScaled:
        return scale(node, outcome);
      case Rewrite::kLossOfSlice:
        return compute_loss_of_slice(node, outcome);
      case Rewrite::kHeadOfSlice:
        return compute_head_of_slice(node, outcome);
    }
  }

  // All that reads the value reads the whole one instead.
  void gather(Value* value, const Placement& held) {
    const WithInsertPoint after(value->node()->next());
    Value* whole = insert_cut(graph_, kGatherOperator, value, group_, held.dim,
                              placement::layout_of(held.segments, group_->size()));
    value->replaceAllUsesAfterNodeWith(whole->node(), whole);
    take_for(value, whole, {});
    placements_.insert_or_assign(value, Placements{held});
  }

  // What the node's branches read of partial values and of positions.
  void read_whole_inside(Node* node) {
    for (auto* inner : node->blocks()) {
      graph::for_each_node(inner, [&](Node* other) {
        for (size_t i = 0; i < other->inputs().size(); ++i) other->replaceInput(i, made_whole(other->input(i)));
      });
      for (size_t i = 0; i < inner->outputs().size(); ++i) {
        inner->replaceOutput(i, made_whole(inner->outputs()[i]));
      }
    }
  }

  Value* made_whole(Value* value) {
    const auto found = placements_.find(value);
    if (found == placements_.end() || found->second.size() != 1) return value;
    if (found->second[0].is_partial()) return reduced(value);
    return found->second[0].is_of_positions() ? gathered(value, found->second[0], kGatherPositionsOperator) : value;
  }

  // Or its tuple, whose elements are then what they have to be.
  bool returns_positions() const {
    const auto& results = plan_.positions.results;
    return std::any_of(results.begin(), results.end(), [](const auto& dim) { return dim.has_value(); });
  }

  void read_operands(Node* node, const Outcome& outcome) {
    // A unit and a tuple pass on what they read as it is.
    const bool passes_on = plan_.flat.unit_calls.count(node) > 0 || node->kind() == c10::prim::TupleConstruct;
    const bool is_placed =
        outcome.rewrite == Rewrite::kHeadOfSlice ||
        (!passes_on && std::any_of(outcome.results.begin(), outcome.results.end(), [](const Placements& held) {
          return std::any_of(held.begin(), held.end(), [](const Placement& one) { return !one.is_whole(); });
        }));
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      Value* input = node->input(i);
      if (input->type()->kind() == c10::TypeKind::ListType) {
        read_list(node, i, outcome.reads[i], is_placed);
      } else if (outcome.reads[i].size() == 1 || is_tensor(input)) {
        const Placement wanted = outcome.reads[i].empty() ? Placement() : outcome.reads[i][0];
        node->replaceInput(i, read(input, held_by(input), wanted, is_placed));
      }
    }
  }

  bool is_tensor(const Value* value) const {
    const c10::IValue* known = plan_.known.find(value);
    return known != nullptr && known->isTensor() && known->toTensor().defined();
  }

  Placement held_by(const Value* value) const {
    const auto found = placements_.find(value);
    return found == placements_.end() || found->second.empty() ? Placement() : found->second[0];
  }

  // cat() and stack() are the only ones that read the elements of a list in another way than they are.
  void read_list(Node* node, size_t i, const Placements& wanted, bool is_placed) {
    Node* list = node->input(i)->node();
    if (list->kind() != c10::prim::ListConstruct || list->inputs().size() != wanted.size()) return;
    std::vector<Value*> elements;
    for (size_t k = 0; k < wanted.size(); ++k) {
      elements.push_back(read(list->input(k), held_by(list->input(k)), wanted[k], is_placed));
    }
    if (std::equal(elements.begin(), elements.end(), list->inputs().begin())) return;
    const WithInsertPoint before(node);
    const auto type = node->input(i)->type()->expectRef<c10::ListType>().getElementType();
    node->replaceInput(i, graph_.insertNode(graph_.createList(type, elements))->output());
  }

  Value* read(Value* value, const Placement& held, const Placement& wanted, bool result_is_placed) {
    if (!is_tensor(value) && held.is_whole()) return value;
    if (held.is_of_positions() && !wanted.is_of_positions()) {
      Value* whole = gathered(value, held, result_is_placed ? kGatherForPartsOperator : kGatherPositionsOperator);
      return wanted.is_sharded() ? own_slice(whole, wanted) : whole;
    }
    if (held.is_sharded()) {
      DSL_CHECK(wanted.is_sharded() && wanted.dim == held.dim, "what a plan gathers is read as a whole value");
      return value;
    }
    if (wanted.is_partial()) return value;
    if (wanted.is_of_positions()) {
      return to_positions(value, held.is_partial() ? kReduceScatterOperator : kOwnPositionsOperator, wanted.dim);
    }
    if (held.is_partial()) value = reduced(value);
    if (wanted.is_sharded()) return own_slice(copied(value), wanted);
    return result_is_placed ? copied(value) : value;
  }

  Value* reduced(Value* value) { return inserted({value, kReduceOperator, 0, {}}); }
  Value* copied(Value* value) {
    return differentiable_.count(value) == 0 ? value : inserted({value, kCopyOperator, 0, {}});
  }
  Value* own_slice(Value* value, const Placement& wanted) {
    const auto layout = wanted.shared.empty() ? placement::layout_of(wanted.segments, group_->size()) : wanted.shared;
    return inserted({value, kOwnSliceOperator, wanted.dim, layout});
  }

  Value* gathered(Value* value, const Placement& held, const char* name) {
    Value* whole_length = length(length_of_positions(held));
    return converted({value, name, held.dim, {}}, [&] {
      return insert_tensor_operator(graph_, name, {value, constant(held.dim), whole_length}, group_);
    });
  }
  Value* to_positions(Value* value, const char* name, int64_t dim) {
    return converted({value, name, dim, {}}, [&] {
      return insert_tensor_operator(graph_, name, {value, constant(dim)}, group_);
    });
  }

  // A length, read right behind the value that has it.
  Value* length(size_t number) {
    const auto [value, dim] = lengths_.at(number);
    if (value == nullptr) return length_argument_;
    Value*& known = length_values_[number];
    if (known == nullptr) {
      const WithInsertPoint after(behind(value));
      known = graph_.insert(c10::aten::size, {const_cast<Value*>(value), dim});
    }
    return known;
  }

  Node* behind(const Value* value) {
    Node* node = const_cast<Value*>(value)->node();
    return node->kind() == c10::prim::Param ? *graph_.nodes().begin() : node->next();
  }

  struct Conversion {
    Value* value;
    const char* name;
    int64_t dim;
    Layout layout;
  };

  Value* inserted(const Conversion& conversion) {
    return converted(conversion, [&] {
      return conversion.layout.empty()
                 ? insert_tensor_operator(graph_, conversion.name, conversion.value, group_)
                 : insert_cut(graph_, conversion.name, conversion.value, group_, conversion.dim, conversion.layout);
    });
  }

  // Each conversion of a value once, right behind the value.
  Value* converted(const Conversion& conversion, const std::function<Value*()>& insert) {
    auto& known = conversions_[conversion.value];
    for (const auto& [made, result] : known) {
      if (made.name == conversion.name && made.dim == conversion.dim && made.layout == conversion.layout) return result;
    }
    const WithInsertPoint after(behind(conversion.value));
    Value* result = insert();
    take_for(conversion.value, result, {});
    known.emplace_back(conversion, result);
    return result;
  }

  // What is known of one value holds for another.
  void take_for(const Value* old, Value* by, const Placements& held) {
    if (differentiable_.count(old) > 0) differentiable_.insert(by);
    if (const c10::IValue* known = plan_.known.find(old)) plan_.known.values.insert_or_assign(by, *known);
    if (!held.empty()) placements_.insert_or_assign(by, held);
  }

  Value* constant(const c10::IValue& value) { return graph_.insertConstant(value); }

  void edit_number(Node* node, const NumberEdit& edit) {
    const WithInsertPoint before(node);
    Value* input = node->input(edit.input);
    const auto local = [&](Value* whole) {
      return edit.by_rank.empty() ? own_length(whole) : rescaled(whole, edit.per_whole, edit.by_rank.at(rank_));
    };
    node->replaceInput(edit.input, edit.position ? with_element(input, *edit.position, local) : local(input));
  }

  Value* own_length(Value* whole) {
    Value* out = insert_tensor_operator(graph_, kOwnLengthOperator, whole, group_);
    return out->setType(c10::IntType::get());
  }

  // `to`; with `per` instead of each `per` of the number.
  Value* rescaled(Value* number, int64_t per, int64_t to) {
    if (per == 0) return constant(to);
    Value* count = graph_.insert(c10::aten::floordiv, {number, constant(per)});
    return graph_.insert(c10::aten::mul, {count, constant(to)});
  }

  // A list of numbers with another number at one position.
  Value* with_element(Value* list, size_t position, const std::function<Value*(Value* old)>& number) {
    std::vector<Value*> elements = elements_of(list);
    elements.at(position) = number(elements.at(position));
    Value* out = graph_.insertNode(graph_.createList(c10::IntType::get(), elements))->output();
    take_for(list, out, {});
    return out;
  }

  std::vector<Value*> elements_of(Value* list) {
    if (list->node()->kind() == c10::prim::ListConstruct) return list->node()->inputs().vec();
    std::vector<Value*> elements;
    const size_t count = plan_.known.find(list)->toIntVector().size();
    for (size_t i = 0; i < count; ++i) {
      elements.push_back(graph_.insert(c10::aten::__getitem__, {list, constant(static_cast<int64_t>(i))}));
    }
    return elements;
  }

  Value* insert(const char* kind, const std::vector<Value*>& inputs) {
    return graph_.insertNode(graph_.create(c10::Symbol::fromQualString(kind), inputs))->output();
  }

  void replace(Node* node, Value* by) {
    by->setType(node->output()->type());
    by->node()->setSourceRange(node->sourceRange());
    for (auto& length : lengths_) {
      if (length.value == node->output()) length.value = by;
    }
    const auto held = placements_.find(node->output());
    take_for(node->output(), by, held == placements_.end() ? Placements() : held->second);
    node->output()->replaceAllUsesWith(by);
    forget(node->output());
    old_.erase(node);
    plan_.flat.call_of.erase(node);
    node->destroy();
  }

  // A value that comes later may be where this one was.
  void forget(const Value* value) {
    placements_.erase(value);
    differentiable_.erase(value);
    conversions_.erase(value);
    plan_.known.values.erase(value);
  }

  void keep_whole_sizes(Node* node, const Outcome& outcome) {
    const Placement& read = outcome.reads.at(0).at(0);
    const int64_t per =
        outcome.groups > 1 ? placement::local_length(outcome.segments, group_->size(), group_->rank()) : 0;
    const auto whole = [&](Value* own) {
      return read.is_of_positions() ? length(length_of_positions(read)) : rescaled(own, per, outcome.whole_size);
    };
    const bool is_number = node->inputs().size() > 1;
    if (is_number && per == 0) {
      const WithInsertPoint before(node);
      return replace(node, whole(nullptr));
    }
    const WithInsertPoint after(node->next());
    Value* sizes = is_number ? whole(node->output())
                             : with_element(node->output(), static_cast<size_t>(outcome.sharded_dim), whole);
    node->output()->replaceAllUsesAfterNodeWith(sizes->node(), sizes);
  }

  void split_unequally(Node* node, const Outcome& outcome) {
    const WithInsertPoint before(node);
    replace(node, insert("aten::split_with_sizes",
                         {node->input(0), constant(outcome.pieces.at(rank_)), constant(outcome.sharded_dim)}));
  }

  void look_up_own_rows(Node* node, const Outcome& outcome) {
    const WithInsertPoint before(node);
    std::vector<Value*> inputs = node->inputs().vec();
    inputs.push_back(layout_value(outcome.segments));
    Value* rows = insert(kEmbeddingOperator, inputs);
    set_tensor_group(rows->node(), group_);
    replace(node, rows);
  }

  void scale(Node* node, const Outcome& outcome) {
    const WithInsertPoint after(node->next());
    Value* scaled = graph_.insert(c10::aten::mul, {node->output(), constant(outcome.scale_by_rank.at(rank_))});
    take_for(node->output(), scaled, placements_.at(node->output()));
    node->output()->replaceAllUsesAfterNodeWith(scaled->node(), scaled);
  }

  // cross_entropy(logits, labels, weight, reduction, ignore_index, label_smoothing, [in_float])
  void compute_loss_of_slice(Node* node, const Outcome& outcome) {
    const WithInsertPoint before(node);
    Value* in_float = node->inputs().size() > 6 ? node->input(6) : constant(false);
    std::vector<Value*> inputs = node->inputs().slice(0, 6).vec();
    inputs.insert(inputs.end(), {in_float, layout_value(outcome.segments)});
    Value* loss = insert(kCrossEntropyOperator, inputs);
    set_tensor_group(loss->node(), group_);
    replace(node, loss);
  }

  // The operator computes it of a part of the classes, too (layers/chunked_head.hpp).
  void compute_head_of_slice(Node* node, const Outcome& outcome) {
    set_tensor_group(node, group_);
    set_layout(node, placement::layout_of(outcome.segments, group_->size()));
  }

  Value* layout_value(const placement::Segments& segments) {
    return insert_layout(graph_, placement::layout_of(segments, group_->size()));
  }

  void replace_by_own_draws(Node* node) {
    const bool is_dropout = node->kind() == c10::aten::dropout;
    const WithInsertPoint before(node);
    std::vector<Value*> inputs = node->inputs().vec();
    Value* drawn = insert(is_dropout ? kDropoutOperator : kAttentionOperator, inputs);
    set_tensor_group(drawn->node(), group_);
    replace(node, drawn);
  }

  GraphPlan& plan_;
  const TensorGroupPtr& group_;
  Graph& graph_;
  const size_t rank_;
  std::unordered_set<const Node*> old_;  // nodes that were there before and are still
  std::unordered_map<const Value*, Placements> placements_;
  std::unordered_set<const Value*> differentiable_;
  std::unordered_map<const Value*, std::vector<std::pair<Conversion, Value*>>> conversions_;
  std::vector<placement::LengthSource> lengths_;
  std::unordered_map<size_t, Value*> length_values_;
  Value* length_argument_ = nullptr;
};

void hold_slice(ParameterInfo& parameter, const Placement& placement, const TensorGroup& group) {
  LocalSlice slice = placement::slice_of(placement, group.size(), group.rank());
  parameter.shape.at(static_cast<size_t>(slice.dim)) = slice.length();
  parameter.numel = 1;
  for (const int64_t size : parameter.shape) parameter.numel *= size;
  parameter.slice = std::move(slice);
}

void add_length_argument(torch::jit::GraphFunction& forward) {
  const auto& schema = forward.getSchema();
  auto arguments = schema.arguments();
  arguments.emplace_back(kLengthArgument, c10::IntType::get());
  forward.setSchema(c10::FunctionSchema(schema.name(), schema.overload_name(), std::move(arguments), schema.returns()));
}

}  // namespace

void edit_graph(GraphPlan& plan, const TensorGroupPtr& group) {
  GraphEdit(plan, group).run();
}

void apply_placements(placement::ModelPlan& plan, const TensorGroupPtr& group, ParameterTable& table) {
  for (auto& each : plan.graphs) {
    edit_graph(each, group);
    auto& forward = torch::jit::toGraphFunction(each.instances.at(0).get_method("forward").function());
    graph::replace_graph(*forward.graph(), *each.flat.graph);
    if (each.positions.takes_any()) add_length_argument(forward);
  }
  for (const auto& [parameter, placement] : plan.parameters) {
    hold_slice(table.parameters.at(static_cast<size_t>(parameter)), placement, *group);
  }
}

}  // namespace dslaunch::runtime::model::tensor_parallel
