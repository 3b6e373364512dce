#include "runtime/model/stages/flat_forward.hpp"

#include <torch/csrc/jit/api/function_impl.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using Object = c10::intrusive_ptr<c10::ivalue::Object>;

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the model cannot be cut into pipeline stages: {}; use 1 stage, or write this part of "
                              "forward as direct calls of its modules",
                              what));
}

// The modules of a model by object.
class ModuleNames {
 public:
  explicit ModuleNames(const Module& model) {
    for (const auto& part : model.named_modules()) paths_.emplace(part.value._ivalue().get(), part.name);
  }
  std::string path_of(ObjectKey object) const {
    const auto found = paths_.find(object);
    return found == paths_.end() ? std::string() : found->second;
  }

 private:
  std::unordered_map<ObjectKey, std::string> paths_;
};

class Flattener {
 public:
  // What a range of nodes belongs to.
  struct Place {
    bool is_top = true;  // in the graph's own block, not in a branch
    std::optional<size_t> layer = {};
  };

  Flattener(Graph& graph, analysis::ObjectOfValue& objects) : graph_(graph), objects_(objects) {}

  // Keeps calls of these modules, and collects layers.
  void keep(const ModuleNames& names, std::unordered_map<ObjectKey, const graph::UnitCandidate*> units) {
    names_ = &names;
    units_ = std::move(units);
  }

  void run() { visit(*graph_.block()->nodes().begin(), graph_.block()->return_node(), {}); }

  std::vector<FlatLayer> layers;
  std::unordered_map<const Node*, size_t> layer_of;
  std::unordered_map<const Node*, Object> unit_calls;

 private:
  void visit(Node* first, const Node* end, const Place& place) {
    for (Node* node = first; node != end;) {
      Node* const next = node->next();
      if (node->kind() == c10::prim::GetAttr) analysis::bind_attribute(node, objects_);
      if (node->kind() == c10::prim::CallMethod) {
        visit_method(node, place);
      } else if (node->kind() == c10::prim::CallFunction) {
        visit_function(node, place);
      } else {
        visit_operator(node, place);
      }
      node = next;
    }
  }

  void visit_operator(Node* node, Place place) {
    if (node->kind() == c10::prim::fork || node->hasAttribute(c10::attr::Subgraph)) {
      refuse("it runs parts of itself on other threads (torch.jit.fork)");
    }
    std::vector<FlatLayer> inside;
    for (Block* inner : node->blocks()) {
      inside_ = place.is_top ? &inside : inside_;
      visit(*inner->nodes().begin(), inner->return_node(), {false, place.layer});
    }
    if (place.is_top && !inside.empty()) place.layer = add_layer(around(node, inside));
    note(node, place);
  }

  // A branch or loop around layers cannot be cut.
  static FlatLayer around(const Node* node, const std::vector<FlatLayer>& inside) {
    const char* kind = node->kind() == c10::prim::Loop ? "Loop" : "If";
    return {inside.front().path, kind, inside.front().is_block, nullptr};
  }

  void visit_method(Node* node, Place place) {
    const auto& name = node->s(c10::attr::name);
    const auto known = objects_.find(node->input(0));
    const auto type = node->input(0)->type()->cast<c10::ClassType>();
    if (known == objects_.end() && (type == nullptr || type->is_module())) {
      refuse(fmt::format(
          "it calls '{}' of a module that is chosen when it runs (an interface, a module out of a branch, or "
          "one that another module passes on, as traces of shared modules do)",
          name));
    }
    if (known == objects_.end()) return inline_call(node, *type, name, place);  // an object made in forward
    const Object object = known->second;
    const auto unit = units_.find(object.get());
    if (unit != units_.end() && name == "forward") {
      unit_calls.emplace(node, object);
      if (!place.layer) {
        FlatLayer layer{unit->second->path, graph::class_name(unit->second->module), unit->second->is_block, object};
        place.layer = put(std::move(layer), place);
      }
      return note(node, place);
    }
    if (names_ != nullptr && !place.layer && is_layer(object)) {
      place.layer = put({names_->path_of(object.get()), graph::class_name(Module(object)), false, object}, place);
    }
    inline_call(node, *object->type(), name, place);
  }

  void inline_call(Node* node, const c10::ClassType& type, const std::string& name, const Place& place) {
    auto* method = type.findMethod(name);
    if (method == nullptr || !method->isGraphFunction()) {
      refuse(fmt::format("it calls '{}', whose code is not TorchScript", name));
    }
    inline_function(node, *method, place);
  }

  void visit_function(Node* node, const Place& place) {
    auto* function = node->input(0)->type()->expect<c10::FunctionType>()->function();
    if (!function->isGraphFunction()) return note(node, place);
    node->removeInput(0);
    inline_function(node, *function, place);
  }

  void inline_function(Node* node, torch::jit::Function& function, const Place& place) {
    function.ensure_defined();
    auto& callee = torch::jit::toGraphFunction(function);
    Node* const before = node->prev();  // possibly the block's sentinel
    const Node* const after = node->next();
    torch::jit::inlineCallTo(node, &callee, callee.graph().get());
    visit(before->next(), after, place);
  }

  // Only in the graph's own block; inside a branch the branch becomes the layer.
  std::optional<size_t> put(FlatLayer layer, const Place& place) {
    if (place.is_top) return add_layer(std::move(layer));
    if (inside_ != nullptr) inside_->push_back(std::move(layer));
    return std::nullopt;
  }
  size_t add_layer(FlatLayer layer) {
    layers.push_back(std::move(layer));
    return layers.size() - 1;
  }
  void note(const Node* node, const Place& place) {
    if (place.is_top && place.layer) layer_of[node] = *place.layer;
  }

  bool is_layer(const Object& object) const {
    const Module module(object);
    if (object == root_object()) return false;
    for (const auto& inner : module.modules()) {
      if (units_.count(inner._ivalue().get())) return false;
    }
    return module.parameters(/*recurse=*/false).size() > 0;
  }
  Object root_object() const { return objects_.at(graph_.inputs()[0]); }

  Graph& graph_;
  analysis::ObjectOfValue& objects_;
  const ModuleNames* names_ = nullptr;  // null: no layers are wanted
  std::unordered_map<ObjectKey, const graph::UnitCandidate*> units_;
  std::vector<FlatLayer>* inside_ = nullptr;  // of the branch in the graph's own block that is visited
};

std::shared_ptr<Graph> copy_of_forward(const c10::ClassType& type) {
  auto& method = type.getMethod("forward");
  method.ensure_defined();
  return torch::jit::toGraphFunction(method).graph()->copy();
}

// A layer may have no nodes of its own: its module returns what it is given.
void drop_empty_layers(FlatForward& flat) {
  std::vector<bool> has_nodes(flat.layers.size());
  for (const auto& [node, layer] : flat.layer_of) has_nodes[layer] = true;
  std::vector<FlatLayer> kept;
  std::vector<size_t> number(flat.layers.size());
  for (size_t i = 0; i < flat.layers.size(); ++i) {
    number[i] = kept.size();
    if (has_nodes[i]) kept.push_back(std::move(flat.layers[i]));
  }
  for (auto& [node, layer] : flat.layer_of) layer = number[layer];
  flat.layers = std::move(kept);
}

}  // namespace

void index_nodes(FlatForward& flat) {
  flat.nodes.clear();
  flat.position.clear();
  for (auto& layer : flat.layers) layer.begin = layer.end = 0;
  for (Node* node : flat.graph->nodes()) {
    const size_t position = flat.nodes.size();
    flat.position.emplace(node, position);
    flat.nodes.push_back(node);
    const auto found = flat.layer_of.find(node);
    if (found == flat.layer_of.end()) continue;
    auto& layer = flat.layers[found->second];
    if (layer.end == 0) layer.begin = position;
    layer.end = position + 1;
  }
}

FlatForward flatten_forward(const Module& module, const std::vector<graph::UnitCandidate>& units) {
  FlatForward out;
  out.module = module;
  out.graph = copy_of_forward(*module.type());
  out.objects[out.graph->inputs()[0]] = module._ivalue();
  const ModuleNames names(module);
  std::unordered_map<ObjectKey, const graph::UnitCandidate*> kept;
  for (const auto& unit : units) kept.emplace(unit.module._ivalue().get(), &unit);
  Flattener flattener(*out.graph, out.objects);
  flattener.keep(names, std::move(kept));
  flattener.run();
  out.unit_calls = std::move(flattener.unit_calls);
  out.layer_of = std::move(flattener.layer_of);
  out.layers = std::move(flattener.layers);
  drop_empty_layers(out);
  index_nodes(out);
  return out;
}

FlatBody flatten_body(const Object& unit) {
  FlatBody out{copy_of_forward(*unit->type()), {}};
  out.objects[out.graph->inputs()[0]] = unit;
  Flattener(*out.graph, out.objects).run();
  return out;
}

void inline_all(Graph& graph, analysis::ObjectOfValue& objects) {
  Flattener(graph, objects).run();
}

}  // namespace dslaunch::runtime::model::stages
