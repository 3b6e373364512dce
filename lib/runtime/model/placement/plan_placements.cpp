#include "runtime/model/placement/plan_placements.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/graph/aliases.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/operators/operator_traits.hpp"
#include "runtime/model/placement/late_bias.hpp"
#include "runtime/model/placement/plan_sequences.hpp"
#include "runtime/model/placement/slices_of_views.hpp"
#include "runtime/model/placement/split_rules.hpp"

namespace dslaunch::runtime::model::placement {
namespace {

using graph::FlatGraph;
using graph::Object;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;

// Tokens of their sequences, so that what a probe computes with them takes no longer than it must: of the shortest
// recorded length, the next ones are longer. Odd, as hardly any size of a model is a multiple of it.
constexpr int64_t kTokens = 13;

const c10::Symbol kCall = c10::Symbol::attr("call");  // of a node, while passes run that destroy nodes

size_t depth_of(const Node* node) {
  size_t depth = 0;
  while ((node = node->owningBlock()->owningNode()) != nullptr) ++depth;
  return depth;
}

// The calls of a graph whose nodes say which call they are of.
void find_calls(FlatGraph& flat, std::vector<graph::FlatCall> calls) {
  std::vector<const Node*> outermost(calls.size(), nullptr);
  graph::for_each_node(flat.graph->block(), [&](Node* node) {
    if (!node->hasAttribute(kCall)) return;
    const auto call = static_cast<size_t>(node->i(kCall));
    node->removeAttribute(kCall);
    flat.call_of[node] = call;
    const Node*& known = outermost[call];
    if (known == nullptr || depth_of(node) < depth_of(known)) known = node;
  });
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool is_unit = calls[i].unit_call != nullptr;
    calls[i].unit_call = is_unit ? outermost[i] : nullptr;
    calls[i].around = outermost[i] == nullptr ? nullptr : outermost[i]->owningBlock()->owningNode();
    if (is_unit && outermost[i] == nullptr) calls[i].object = nullptr;  // in a branch that is never taken
  }
  flat.calls = std::move(calls);
}

// Whether no other value may share the memory of a new tensor, and nothing reads it after this node.
bool is_last_use(const Value* value, const Node* last) {
  const auto& row = operators::traits(value->node()->kind());
  if (value->node()->owningBlock() != last->owningBlock()) return false;
  if (!row.makes_new_tensor && row.gemm.factor < 0) return false;
  return std::all_of(value->uses().begin(), value->uses().end(), [&](const torch::jit::Use& use) {
    if (use.user == last) return true;
    return use.user->owningBlock() == last->owningBlock() && use.user->isBefore(last) &&
           operators::traits(use.user->kind()).makes_new_tensor;
  });
}

// Elementwise operators that write to a tensor which nothing else sees make a new one instead.
void replace_in_place_writes(torch::jit::Graph& graph) {
  graph::for_each_node(graph.block(), [&](Node* node) {
    if (!operators::works_in_place(node->kind()) || !is_last_use(node->input(0), node)) return;
    const std::string name = node->kind().toQualString();
    const auto kind = c10::Symbol::fromQualString(name.substr(0, name.size() - 1));
    if (!operators::traits(kind).elementwise) return;
    Node* same = graph.create(kind, node->inputs());
    same->setSourceRange(node->sourceRange());
    same->output()->copyMetadata(node->output());
    same->insertBefore(node);
    node->output()->replaceAllUsesWith(same->output());
    node->destroy();
  });
}

// A forward without tuples and without branches that constants decide.
FlatGraph resolved(const Module& module, const std::vector<graph::UnitCandidate>& units) {
  auto flat = graph::flatten_forward(module, units);
  for (const auto& [node, call] : flat.call_of) const_cast<Node*>(node)->i_(kCall, static_cast<int64_t>(call));
  torch::jit::ConstantPropagationImmutableTypes(flat.graph);
  torch::jit::LowerSimpleTuples(flat.graph);
  FlatGraph out{.module = module, .graph = std::move(flat.graph), .obstacle = std::move(flat.obstacle)};
  find_calls(out, std::move(flat.calls));
  replace_in_place_writes(*out.graph);
  out.objects[out.graph->inputs()[0]] = module._ivalue();
  std::unordered_map<const void*, bool> kept;
  for (const auto& unit : units) kept.emplace(unit.module._ivalue().get(), true);
  graph::for_each_node(out.graph->block(), [&](const Node* node) {
    if (node->kind() == c10::prim::GetAttr) graph::bind_attribute(node, out.objects);
    if (node->kind() != c10::prim::CallMethod) return;
    const auto callee = out.objects.find(node->input(0));
    if (callee != out.objects.end() && kept.count(callee->second.get()) > 0) {
      out.unit_calls.emplace(node, callee->second);
    }
  });
  return out;
}

// An attribute of a module that is reached from the one whose forward a graph is.
c10::IValue attribute_at(const Object& from, const Node* read);

Object object_at(const Object& from, const Value* value) {
  if (value->node()->kind() == c10::prim::Param) return from;  // self
  if (value->node()->kind() != c10::prim::GetAttr) return {};
  const c10::IValue found = attribute_at(from, value->node());
  return found.isObject() ? found.toObject() : Object();
}

c10::IValue attribute_at(const Object& from, const Node* read) {
  const Object owner = object_at(from, read->input(0));
  const auto& name = read->s(c10::attr::name);
  return owner && owner->type()->hasAttribute(name) ? owner->getAttr(name) : c10::IValue();
}

std::optional<SlotKey> slot_at(const Object& from, const Node* read) {
  const Object owner = object_at(from, read->input(0));
  if (!owner) return std::nullopt;
  const auto slot = owner->type()->findAttributeSlot(read->s(c10::attr::name));
  return slot ? std::optional(SlotKey{owner.get(), *slot}) : std::nullopt;
}

// Whether a graph means the same for two modules: only what tensors hold may differ.
bool agree(const c10::IValue& one, const c10::IValue& other) {
  if (one.isTensor() && other.isTensor()) {
    const at::Tensor a = one.toTensor(), b = other.toTensor();
    if (a.defined() != b.defined()) return false;
    return !a.defined() ||
           (a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.requires_grad() == b.requires_grad());
  }
  if (one.isObject() && other.isObject()) return true;  // what is read of it is compared
  const auto all_agree = [](const auto& a, const auto& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const c10::IValue& x, const c10::IValue& y) { return agree(x, y); });
  };
  if (one.isTuple() && other.isTuple()) return all_agree(one.toTupleRef().elements(), other.toTupleRef().elements());
  if (one.isList() && other.isList()) return all_agree(one.toListRef(), other.toListRef());
  if (one.isGenericDict() && other.isGenericDict()) {
    const auto entries = one.toGenericDict(), others = other.toGenericDict();
    return entries.size() == others.size() && std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
             return others.contains(entry.key()) && agree(entry.value(), others.at(entry.key()));
           });
  }
  return one.tagKind() == other.tagKind() && one == other;
}

bool agree(const FlatGraph& flat, const Object& instance) {
  return !graph::any_node(flat.graph->block(), [&](const Node* node) {
    return node->kind() == c10::prim::GetAttr &&
           !agree(attribute_at(flat.module._ivalue(), node), attribute_at(instance, node));
  });
}

at::ScalarType dtype_of(const RecordedInput& input) {
  return input.dtype == "float32" ? at::kFloat : input.dtype == "bool" ? at::kBool : at::kLong;
}

// What a plan is made of: a graph with the numbers of its parameters.
struct Draft {
  FlatGraph flat;
  std::vector<Module> instances;
  std::vector<std::vector<int>> parameters = {};     // by instance and number: in the table
  std::unordered_map<const Value*, int> reads = {};  // numbers
  std::unordered_set<const Value*> written = {};
  std::optional<KnownValues> known = {};
  c10::IValue result = {};
  std::vector<c10::IValue> arguments = {};
  std::string obstacle = {};
  ChosenLayouts chosen = {};
  UnitPositions positions = {};

  PlacedGraph placed() const { return {flat, *known, written, reads}; }
};

class Planner {
 public:
  Planner(const ModelToPlace& model, const TensorParallelOptions& options) : model_(model), options_(options) {
    for (size_t i = 0; i < model.locations.size(); ++i) {
      for (const auto& location : model.locations[i]) {
        const SlotKey slot{location.object.get(), location.slot};
        if (location.keys.empty()) {
          slots_[slot] = static_cast<int>(i);
        } else {
          kept_whole_.emplace(static_cast<int>(i), "a list or dict of a module holds it");
        }
      }
    }
  }

  ModelPlan run() {
    // A trace may hold the length that it was recorded with.
    if (!run_shapes(shortened(model_.inputs))) run_shapes(model_.inputs);
    for (Draft& each : drafts_) {
      if (each.known && each.obstacle.empty()) slice_before_views(each.flat, *each.known);
      number_parameters(each);
    }
    choose_all();
    for (Draft& each : drafts_) add_biases_late(each);
    if (options_.sequence_parallel) split_positions();
    return result();
  }

 private:
  Draft draft(const Module& module, const std::vector<graph::UnitCandidate>& units) {
    Draft out{.flat = resolved(module, units), .instances = {module}};
    out.obstacle = out.flat.obstacle;
    return out;
  }

  static bool is_sequence(const RecordedInput& input) {
    return input.shape.size() == 1 && dtype_of(input) != at::kFloat;
  }

  // Inputs of equal length stay so, and those of different lengths differ.
  std::vector<RecordedInput> shortened(std::vector<RecordedInput> inputs) const {
    // Ranks that split positions have as many each, as in most batches.
    const int64_t multiple = options_.sequence_parallel ? options_.size : 1;
    const int64_t shortest = (kTokens + multiple - 1) / multiple * multiple;
    std::set<int64_t> lengths;
    for (const auto& input : inputs) {
      if (is_sequence(input)) lengths.insert(input.shape[0]);
    }
    for (auto& input : inputs) {
      if (!is_sequence(input)) continue;
      const auto longer_than = std::distance(lengths.begin(), lengths.find(input.shape[0]));
      input.shape[0] = std::min<int64_t>(input.shape[0], shortest + 2 * multiple * longer_than);
    }
    return inputs;
  }

  // Shapes of the root, and of the units on the way. False: not all of them can be known.
  bool run_shapes(const std::vector<RecordedInput>& inputs) {
    drafts_.clear();
    draft_of_object_.clear();
    draft_of_class_.clear();
    drafts_.push_back(draft(model_.module, model_.units));
    run_root(inputs);
    return std::all_of(drafts_.begin(), drafts_.end(), [](const Draft& each) { return each.obstacle.empty(); });
  }

  void run_root(const std::vector<RecordedInput>& inputs) {
    Draft& root = drafts_[0];
    const auto& schema = model_.module.get_method("forward").function().getSchema();
    std::vector<c10::IValue> arguments;
    for (size_t i = 1; i < schema.arguments().size(); ++i) {
      const auto recorded = std::find_if(inputs.begin(), inputs.end(),
                                         [&](const auto& input) { return input.name == schema.arguments()[i].name(); });
      if (recorded != inputs.end()) {
        std::vector<int64_t> sizes = recorded->shape;
        sizes.insert(sizes.begin(), kAnalyzedBatch);
        arguments.emplace_back(meta_tensor(sizes, dtype_of(*recorded)));
      } else if (schema.arguments()[i].default_value()) {
        arguments.push_back(*schema.arguments()[i].default_value());
      } else {
        root.obstacle =
            fmt::format("the file does not record the shape of its input '{}'", schema.arguments()[i].name());
        return;
      }
    }
    KnownValues known = find_values(root.flat, arguments, call_unit());
    if (!known.obstacle.empty()) root.obstacle = known.obstacle;
    root.known = std::move(known);
    // A class has one forward for all its units: those of which the shapes are not known as well.
    for (const auto& [call, object] : root.flat.unit_calls) {
      if (draft_of_object_.count(object.get()) > 0) continue;
      drafts_[draft_of(object)].obstacle = "a branch or loop calls a unit of its class";
    }
  }

  CallUnit call_unit() {
    return [this](const Node* call, const std::vector<c10::IValue>& arguments) -> Result<c10::IValue> {
      return result_of(drafts_[0].flat.unit_calls.at(call), arguments);
    };
  }

  Result<c10::IValue> result_of(const Object& object, const std::vector<c10::IValue>& arguments) {
    const size_t number = draft_of(object);
    if (const Draft& known = drafts_[number];
        known.known && known.obstacle.empty() && are_alike(known.arguments, arguments)) {
      return known.result;
    }
    const bool is_first = !drafts_[number].known && drafts_[number].instances[0]._ivalue() == object;
    const FlatGraph other = is_first ? FlatGraph{.module = Module(object), .graph = {}} : resolved(Module(object), {});
    const FlatGraph& flat = is_first ? drafts_[number].flat : other;
    KnownValues known = find_values(flat, arguments, [](const Node*, const std::vector<c10::IValue>&) {
      return Result<c10::IValue>(Failure{std::string("it calls another unit")});
    });
    if (!known.obstacle.empty()) {
      if (is_first) drafts_[number].obstacle = known.obstacle;
      return Failure{std::move(known.obstacle)};
    }
    const c10::IValue result = *known.find(flat.graph->outputs()[0]);
    if (is_first) {
      drafts_[number].known = std::move(known);
      drafts_[number].result = result;
      drafts_[number].arguments = arguments;
    }
    return result;
  }

  static bool are_alike(const std::vector<c10::IValue>& one, const std::vector<c10::IValue>& other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
      if (a.isTensor() && b.isTensor()) {
        return a.toTensor().defined() == b.toTensor().defined() &&
               (!a.toTensor().defined() || a.toTensor().sizes() == b.toTensor().sizes());
      }
      return agree(a, b);
    });
  }

  // The draft of a unit's class; a new one for the first unit of the class.
  size_t draft_of(const Object& object) {
    const auto known = draft_of_object_.find(object.get());
    if (known != draft_of_object_.end()) return known->second;
    const auto [of_class, is_new] = draft_of_class_.try_emplace(object->type().get(), drafts_.size());
    if (is_new) {
      drafts_.push_back(draft(Module(object), {}));
    } else {
      Draft& first = drafts_[of_class->second];
      if (!agree(first.flat, object)) first.obstacle = "units of one class differ in their sizes";
      first.instances.emplace_back(object);
    }
    draft_of_object_[object.get()] = of_class->second;
    return of_class->second;
  }

  // Parameters that module instance reads in several places have one number; all instances must do so alike.
  void number_parameters(Draft& draft) {
    draft.parameters.resize(draft.instances.size());
    std::map<int, int> numbers;  // by the first instance's parameter
    graph::for_each_node(draft.flat.graph->block(), [&](const Node* node) {
      if (node->kind() != c10::prim::GetAttr) return;
      const auto first = parameter_at(draft.instances[0]._ivalue(), node);
      if (!first) return;
      const auto [number, is_new] = numbers.try_emplace(*first, static_cast<int>(numbers.size()));
      for (size_t i = 0; i < draft.instances.size(); ++i) {
        const int own = parameter_at(draft.instances[i]._ivalue(), node).value_or(-1);
        if (is_new) draft.parameters[i].push_back(own);
        if (own == -1 || draft.parameters[i][static_cast<size_t>(number->second)] != own) {
          draft.obstacle = "units of one class share parameters in different ways";
        }
      }
      if (node->owningBlock() == draft.flat.graph->block()) {
        draft.reads.emplace(node->output(), number->second);
      } else {
        kept_whole_.emplace(*first, "a branch or loop reads it");
      }
    });
    const graph::Aliases aliases(draft.flat);
    graph::for_each_node(draft.flat.graph->block(), [&](const Node* node) {
      for (const Value* output : node->outputs()) {
        if (aliases.is_written(output)) draft.written.insert(output);
      }
    });
    for (const Value* input : draft.flat.graph->inputs()) {
      if (aliases.is_written(input)) draft.written.insert(input);
    }
  }

  std::optional<int> parameter_at(const Object& from, const Node* read) const {
    const auto slot = slot_at(from, read);
    const auto found = slot ? slots_.find(*slot) : slots_.end();
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }

  void choose_all() {
    std::vector<bool> is_chosen(drafts_.size(), false);
    for (bool has_conflict = true; has_conflict;) {
      for (size_t i = 0; i < drafts_.size(); ++i) {
        if (!is_chosen[i]) choose(drafts_[i]);
        is_chosen[i] = true;
      }
      has_conflict = false;
      for (const int parameter : parameters_in_conflict()) {
        has_conflict = true;
        // A head splits its classes: a table that it is tied to may split its rows.
        if (!split_rows_.insert(parameter).second) {
          kept_whole_.emplace(parameter, "it is tied, and its uses need different parts of it");
        }
        for (size_t i = 0; i < drafts_.size(); ++i) is_chosen[i] = is_chosen[i] && !reads(drafts_[i], parameter);
      }
    }
  }

  static bool reads(const Draft& draft, int parameter) {
    return std::any_of(draft.parameters.begin(), draft.parameters.end(), [&](const auto& of_instance) {
      return std::find(of_instance.begin(), of_instance.end(), parameter) != of_instance.end();
    });
  }

  void choose(Draft& draft) const {
    draft.chosen = {};
    if (!draft.obstacle.empty() || !draft.known) return;
    std::map<int, GivenSplit> given;
    const std::string block_class = class_of(draft);
    for (const auto& of_instance : draft.parameters) {
      for (size_t number = 0; number < of_instance.size(); ++number) {
        const auto kept = kept_whole_.find(of_instance[number]);
        const auto* rule = rule_for(options_, block_class, name_of(of_instance[number]));
        if (kept != kept_whole_.end()) {
          given[static_cast<int>(number)] = {GemmSplit::kWhole, {}, kept->second};
        } else if (split_rows_.count(of_instance[number]) > 0) {
          given.try_emplace(static_cast<int>(number), GivenSplit{GemmSplit::kColumn});
        } else if (rule != nullptr) {
          given.try_emplace(static_cast<int>(number), given_by(*rule));
        }
      }
    }
    draft.chosen = choose_layouts(draft.placed(), options_.size, given);
  }

  // Empty: the root's.
  std::string class_of(const Draft& draft) const {
    return &draft == &drafts_.front() ? std::string() : graph::class_name(draft.instances[0]);
  }
  const std::string& name_of(int parameter) const {
    return model_.table.parameters.at(static_cast<size_t>(parameter)).name;
  }

  void add_biases_late(Draft& draft) const {
    auto& chosen = draft.chosen;
    if (chosen.propagated.outcomes.empty()) return;
    separate_late_biases(draft.flat, *draft.known, draft.written, chosen.propagated, options_.sequence_parallel);
    chosen.propagated =
        propagate(draft.placed(), chosen.views, chosen.decisions, gathered_values(chosen.propagated), options_.size);
  }

  void split_positions() {
    std::vector<Draft*> of_graphs;
    std::vector<SequenceGraph> graphs;
    std::map<size_t, size_t> graph_of_draft;
    for (size_t i = 0; i < drafts_.size(); ++i) {
      Draft& draft = drafts_[i];
      if (!draft.obstacle.empty() || !draft.known) continue;
      graph_of_draft[i] = graphs.size();
      of_graphs.push_back(&draft);
      graphs.push_back({draft.placed(), draft.chosen});
    }
    if (of_graphs.empty() || of_graphs[0] != &drafts_[0]) return;  // without the calls of its units nothing can be said
    auto plans = plan_sequences(graphs, options_.size, [&](const Node* call) -> std::optional<size_t> {
      const auto object = drafts_[0].flat.unit_calls.find(call);
      if (object == drafts_[0].flat.unit_calls.end()) return std::nullopt;
      const auto draft = draft_of_object_.find(object->second.get());
      if (draft == draft_of_object_.end()) return std::nullopt;
      const auto graph = graph_of_draft.find(draft->second);
      return graph == graph_of_draft.end() ? std::nullopt : std::optional(graph->second);
    });
    for (size_t i = 0; i < plans.size(); ++i) {
      of_graphs[i]->chosen.propagated = std::move(plans[i].propagated);
      of_graphs[i]->positions = std::move(plans[i].positions);
    }
  }

  // Of the calls in the root that pass positions.
  std::unordered_map<const Node*, UnitPositions> calls_of(const Draft& draft) const {
    std::unordered_map<const Node*, UnitPositions> out;
    for (const auto& [call, object] : draft.flat.unit_calls) {
      const auto callee = draft_of_object_.find(object.get());
      if (callee == draft_of_object_.end()) continue;
      const auto& positions = drafts_[callee->second].positions;
      if (positions.takes_any()) out.emplace(call, positions);
    }
    return out;
  }

  // Read by several graphs or instances that do not split them alike.
  std::set<int> parameters_in_conflict() const {
    std::map<int, std::optional<Placement>> seen;
    std::set<int> out;
    for (const Draft& draft : drafts_) {
      for (const auto& of_instance : draft.parameters) {
        for (size_t number = 0; number < of_instance.size(); ++number) {
          const auto decision = draft.chosen.decisions.find(static_cast<int>(number));
          const auto own = decision == draft.chosen.decisions.end() ? std::nullopt : std::optional(decision->second);
          const auto [first, is_new] = seen.try_emplace(of_instance[number], own);
          const bool is_alike =
              first->second.has_value() == own.has_value() &&
              (!own || (first->second->dim == own->dim && lie_alike(first->second->segments, own->segments)));
          if (!is_new && !is_alike) out.insert(of_instance[number]);
        }
      }
    }
    return out;
  }

  ModelPlan result() {
    ModelPlan out{.graphs = {}, .parameters = {}, .report = {.ranks = options_.size, .gemms = {}, .notes = {}}};
    if (options_.sequence_parallel) out.report.notes.push_back(positions_note());
    std::map<int, ReportedGemm> gemms;
    for (Draft& draft : drafts_) {
      if (!draft.obstacle.empty()) {
        out.report.notes.push_back(
            fmt::format("'{}' stays whole: {}", graph::class_name(draft.instances[0]), draft.obstacle));
      }
      for (const auto& reason : draft.chosen.gathered) {
        std::string note = fmt::format("'{}': the ranks gather what they have split: {}",
                                       graph::class_name(draft.instances[0]), reason);
        auto& notes = out.report.notes;  // traces have several classes of one name
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
      }
      for (const auto& of_instance : draft.parameters) {
        for (const auto& [number, placement] : draft.chosen.decisions) {
          out.parameters[of_instance.at(static_cast<size_t>(number))] = placement;
        }
        for (const auto& gemm : draft.chosen.gemms) {
          check_rules(options_, class_of(draft), name_of(of_instance.at(static_cast<size_t>(gemm.parameter))), gemm);
          add(gemm, of_instance, gemms);
        }
      }
      if (draft.chosen.propagated.outcomes.empty()) continue;
      add_draws(draft, out.report.draws_on_parts);
      auto calls = calls_of(draft);
      out.graphs.push_back({std::move(draft.flat), std::move(draft.instances), std::move(draft.parameters),
                            *std::move(draft.known), std::move(draft.chosen), draft.positions, std::move(calls)});
    }
    for (auto& [parameter, gemm] : gemms) out.report.gemms.push_back(std::move(gemm));
    return out;
  }

  static void add_draws(const Draft& draft, std::vector<std::string>& out) {
    const auto& outcomes = draft.chosen.propagated.outcomes;
    graph::for_each_node(draft.flat.graph->block(), [&](const Node* node) {
      const auto outcome = outcomes.find(node);
      if (outcome == outcomes.end() || !outcome->second.draws) return;
      std::string place =
          fmt::format("{} in '{}'", node->kind() == c10::aten::dropout ? "dropout" : "attention's dropout",
                      graph::class_name(draft.instances[0]));
      if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(std::move(place));
    });
  }

  std::string positions_note() const {
    size_t units = 0, passing = 0;
    bool any = false;
    for (const Draft& draft : drafts_) {
      any |= !draft.chosen.propagated.lengths.empty();
      if (&draft == &drafts_.front()) continue;
      units += draft.instances.size();
      passing += draft.positions.takes_any() ? draft.instances.size() : 0;
    }
    if (!any) return "nothing is split along positions: no sum over the tensor ranks has a dim of them";
    return fmt::format("positions stay split through {} of {} units", passing, units);
  }

  void add(const PlannedGemm& gemm, const std::vector<int>& of_instance, std::map<int, ReportedGemm>& out) const {
    const int parameter = of_instance.at(static_cast<size_t>(gemm.parameter));
    const char* split = gemm.split == GemmSplit::kColumn ? "column" : gemm.split == GemmSplit::kRow ? "row" : "";
    out.try_emplace(parameter, ReportedGemm{name_of(parameter), split, gemm.elements, gemm.reason});
  }

  const ModelToPlace& model_;
  const TensorParallelOptions& options_;
  std::map<SlotKey, int> slots_;
  std::set<int> split_rows_;               // by parameter of the table
  std::map<int, std::string> kept_whole_;  // by parameter of the table
  std::deque<Draft> drafts_;               // the root first; none moves
  std::unordered_map<const void*, size_t> draft_of_object_, draft_of_class_;
};

}  // namespace

std::vector<graph::UnitCandidate> units_of_split_model(const Module& module, std::vector<graph::UnitCandidate> units) {
  const auto root = graph::flatten_forward(module, units);
  std::unordered_set<const void*> read;  // objects that have attributes which the root reads
  graph::for_each_node(root.graph->block(), [&](const Node* node) {
    if (node->kind() != c10::prim::GetAttr || !node->output()->type()->isSubtypeOf(*c10::TensorType::get())) return;
    const auto owner = root.objects.find(node->input(0));
    if (owner != root.objects.end()) read.insert(owner->second.get());
  });
  std::erase_if(units, [&](const auto& unit) {
    if (unit.is_block) return false;
    if (read.count(unit.module._ivalue().get()) > 0) return true;
    const auto flat = graph::flatten_forward(unit.module, {});
    return graph::any_node(flat.graph->block(), [](const Node* node) {
      const int weight = node->kind() == c10::aten::embedding ? 0 : operators::traits(node->kind()).gemm.weight;
      return weight >= 0 && node->input(static_cast<size_t>(weight))->node()->kind() == c10::prim::Param;
    });
  });
  return units;
}

ModelPlan plan_placements(const ModelToPlace& model, const TensorParallelOptions& options) {
  require_known_modules(options, model.table);
  return Planner(model, options).run();
}

}  // namespace dslaunch::runtime::model::placement
