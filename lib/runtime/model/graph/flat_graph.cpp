#include "runtime/model/graph/flat_graph.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <functional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/torchscript/units/unit_forwards.hpp"

namespace dslaunch::runtime::model::graph {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;

constexpr int kMaxDepth = 64;  // of calls

// The code of a method; of an intercepted unit's forward as it was. Null: it is not TorchScript.
torch::jit::GraphFunction* code_of(const c10::ClassType& type, const std::string& name) {
  if (name == "forward") {
    if (const auto unit = units::unit_forward(type)) return &unit->original;
  }
  auto* method = type.findMethod(name);
  if (method == nullptr || !method->isGraphFunction()) return nullptr;
  method->ensure_defined();
  return &torch::jit::toGraphFunction(*method);
}

// Inlines from the outside to the inside, so that each node is copied once. Called functions keep their graphs.
class Inliner {
 public:
  // Whether a call of a method stays. `callee`: null: the object is not known.
  using Stays = std::function<bool(const Node* call, const Object& callee)>;

  Inliner(Graph& graph, FlatGraph& flat, Stays stays) : graph_(graph), flat_(flat), stays_(std::move(stays)) {}

  void run() { visit(*graph_.block()->nodes().begin(), graph_.block()->return_node(), {}); }

 private:
  // Where a range of nodes lies.
  struct Scope {
    std::optional<size_t> call = {};
    const Node* around = nullptr;
    int depth = 0;
  };

  void visit(Node* first, const Node* end, const Scope& scope) {
    for (Node* node = first; node != end;) {
      Node* const next = node->next();
      if (node->kind() == c10::prim::GetAttr) bind_attribute(node, flat_.objects);
      if (node->kind() == c10::prim::CallMethod) {
        visit_method(node, scope);
      } else if (node->kind() == c10::prim::CallFunction) {
        visit_function(node, scope);
      } else {
        visit_operator(node, scope);
      }
      node = next;
    }
  }

  void visit_operator(Node* node, const Scope& scope) {
    if (node->kind() == c10::prim::fork || node->hasAttribute(c10::attr::Subgraph)) {
      stop_at("it runs parts of itself on other threads (torch.jit.fork)");
    }
    for (Block* inner : node->blocks()) {
      visit(*inner->nodes().begin(), inner->return_node(), {scope.call, node, scope.depth});
    }
    note(node, scope.call);
  }

  void visit_method(Node* node, const Scope& scope) {
    const auto& name = node->s(c10::attr::name);
    const auto known = flat_.objects.find(node->input(0));
    const Object object = known == flat_.objects.end() ? Object() : known->second;
    const auto type = object ? object->type() : node->input(0)->type()->cast<c10::ClassType>();
    if (!object && (type == nullptr || type->is_module())) {
      stop_at(fmt::format(
          "it calls '{}' of a module that is chosen when it runs (an interface, a module out of a branch, or "
          "one that another module passes on, as traces of shared modules do)",
          name));
    }
    if (stays_(node, object)) {
      if (object) flat_.unit_calls.emplace(node, object);
      return note(node, add_call({scope.call, object, scope.around, node}));
    }
    auto* code = type == nullptr ? nullptr : code_of(*type, name);
    if (code == nullptr) {
      stop_at(fmt::format("it calls '{}', whose code is not TorchScript", name));
      return note(node, scope.call);
    }
    inline_function(node, *code, object, scope);
  }

  void visit_function(Node* node, const Scope& scope) {
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    if (!function->isGraphFunction() || scope.depth >= kMaxDepth) return note(node, scope.call);
    function->ensure_defined();
    node->removeInput(0);
    inline_function(node, torch::jit::toGraphFunction(*function), {}, scope);
  }

  void inline_function(Node* node, torch::jit::GraphFunction& callee, const Object& object, const Scope& scope) {
    if (scope.depth >= kMaxDepth) {
      stop_at(fmt::format("its calls are nested more than {} deep", kMaxDepth));
      return note(node, scope.call);
    }
    Node* const before = node->prev();  // possibly the block's sentinel
    const Node* const after = node->next();
    torch::jit::inlineCallTo(node, &callee, callee.graph().get());
    visit(before->next(), after,
          {add_call({scope.call, object, scope.around, nullptr}), scope.around, scope.depth + 1});
  }

  size_t add_call(FlatCall call) {
    flat_.calls.push_back(std::move(call));
    return flat_.calls.size() - 1;
  }
  void note(const Node* node, std::optional<size_t> call) {
    if (call) flat_.call_of[node] = *call;
  }
  void stop_at(std::string obstacle) {
    if (flat_.obstacle.empty()) flat_.obstacle = std::move(obstacle);
  }

  Graph& graph_;
  FlatGraph& flat_;
  const Stays stays_;
};

bool none_stays(const Node*, const Object&) {
  return false;
}

bool is_intercepted(const Node* call, const Object&) {
  const auto type = call->input(0)->type()->cast<c10::ClassType>();
  return type != nullptr && call->s(c10::attr::name) == "forward" && units::unit_forward(*type) != nullptr;
}

}  // namespace

void bind_attribute(const Node* node, ObjectOfValue& objects) {
  auto owner = objects.find(node->input(0));
  if (owner == objects.end()) return;
  const auto value = owner->second->getAttr(node->s(c10::attr::name));
  if (value.isObject()) objects[node->output()] = value.toObject();
}

FlatGraph flatten_forward(const Module& module, const std::vector<UnitCandidate>& units) {
  auto* code = code_of(*module.type(), "forward");
  DSL_CHECK(code != nullptr, "the module has a forward in TorchScript");
  FlatGraph out{.module = module, .graph = code->graph()->copy()};
  out.objects[out.graph->inputs()[0]] = module._ivalue();
  std::unordered_set<const void*> kept;
  for (const auto& unit : units) kept.insert(unit.module._ivalue().get());
  Inliner(*out.graph, out, [&](const Node* call, const Object& callee) {
    return callee && kept.count(callee.get()) > 0 && call->s(c10::attr::name) == "forward";
  }).run();
  return out;
}

FlatGraph flatten_resolved(const Module& module) {
  auto flat = flatten_forward(module);
  torch::jit::ConstantPropagationImmutableTypes(flat.graph);
  FlatGraph out{.module = module, .graph = std::move(flat.graph), .obstacle = std::move(flat.obstacle)};
  out.objects[out.graph->inputs()[0]] = module._ivalue();
  for_each_node(out.graph->block(), [&](const Node* node) {
    if (node->kind() == c10::prim::GetAttr) bind_attribute(node, out.objects);
  });
  return out;
}

void inline_calls(Graph& graph, ObjectOfValue& objects) {
  FlatGraph flat{.objects = std::move(objects)};
  Inliner(graph, flat, none_stays).run();
  objects = std::move(flat.objects);
}

std::vector<std::shared_ptr<Graph>> inline_running_forwards(const Module& model) {
  std::unordered_set<const void*> seen;
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const auto& module : model.modules()) {
    if (!seen.insert(module.type().get()).second) continue;
    if (const auto unit = units::unit_forward(*module.type())) graphs.push_back(unit->original.graph());
  }
  if (!units::unit_forward(*model.type())) {
    if (auto* method = model.type()->findMethod("forward"); method != nullptr && method->isGraphFunction()) {
      method->ensure_defined();
      graphs.push_back(torch::jit::toGraphFunction(*method).graph());
    }
  }
  for (const auto& graph : graphs) {
    FlatGraph flat;
    Inliner(*graph, flat, is_intercepted).run();
    torch::jit::LowerSimpleTuples(graph);
  }
  return graphs;
}

}  // namespace dslaunch::runtime::model::graph
