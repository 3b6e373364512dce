#include "runtime/model/stages/flat_forward.hpp"

#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::stages {
namespace {

using graph::FlatCall;
using graph::UnitCandidate;
using torch::jit::Module;
using torch::jit::Node;

// Follows the calls of a flat graph, each of which belongs to the outermost layer around it.
class LayerSearch {
 public:
  LayerSearch(FlatForward& flat, const std::vector<UnitCandidate>& units)
      : flat_(flat), layer_of_call_(flat.calls.size()) {
    for (const auto& part : flat.module.named_modules()) paths_.emplace(part.value._ivalue().get(), part.name);
    for (const auto& unit : units) units_.emplace(unit.module._ivalue().get(), &unit);
    for (size_t i = 0; i < flat.calls.size(); ++i) {
      const auto& call = flat.calls[i];
      layer_of_call_[i] = call.caller ? layer_of_call_[*call.caller] : std::nullopt;
      if (layer_of_call_[i] || !is_layer(call)) continue;
      if (call.around == nullptr) {
        layer_of_call_[i] = i;
      } else {
        inside_.try_emplace(outermost(call.around), i);
      }
    }
  }

  void run() {
    std::unordered_map<size_t, size_t> number;  // of the layer of a call
    for (const Node* node : flat_.graph->nodes()) {
      const auto call = flat_.call_of.find(node);
      const auto layer = call == flat_.call_of.end() ? std::nullopt : layer_of_call_[call->second];
      if (layer) {
        const auto [found, is_new] = number.try_emplace(*layer, flat_.layers.size());
        if (is_new) flat_.layers.push_back(layer_at(flat_.calls[*layer]));
        flat_.layer_of[node] = found->second;
      } else if (const auto first = inside_.find(node); first != inside_.end()) {
        flat_.layer_of[node] = flat_.layers.size();
        flat_.layers.push_back(layer_around(node, layer_at(flat_.calls[first->second])));
      }
    }
  }

 private:
  bool is_layer(const FlatCall& call) const {
    if (call.unit_call != nullptr) return true;
    if (call.object == nullptr || call.object == flat_.module._ivalue()) return false;
    const Module module(call.object);
    if (!module.type()->is_module()) return false;
    for (const auto& inner : module.modules()) {
      if (units_.count(inner._ivalue().get())) return false;
    }
    return module.parameters(/*recurse=*/false).size() > 0;
  }

  FlatLayer layer_at(const FlatCall& call) const {
    const std::string name = graph::class_name(Module(call.object));
    if (call.unit_call == nullptr) return {path_of(call.object.get()), name, false, call.object};
    const auto& unit = *units_.at(call.object.get());
    return {unit.path, name, unit.is_block, call.object};
  }

  // A branch or loop around layers cannot be cut.
  static FlatLayer layer_around(const Node* node, const FlatLayer& first) {
    return {first.path, node->kind() == c10::prim::Loop ? "Loop" : "If", first.is_block, nullptr};
  }

  // The node of the graph's own block around a node.
  static const Node* outermost(const Node* node) {
    while (const Node* around = node->owningBlock()->owningNode()) node = around;
    return node;
  }

  std::string path_of(ObjectKey object) const {
    const auto found = paths_.find(object);
    return found == paths_.end() ? std::string() : found->second;
  }

  FlatForward& flat_;
  std::unordered_map<ObjectKey, std::string> paths_;
  std::unordered_map<ObjectKey, const UnitCandidate*> units_;
  std::vector<std::optional<size_t>> layer_of_call_;  // as a call
  std::unordered_map<const Node*, size_t> inside_;    // by branch or loop: the first layer's call
};

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

void require_followed(const std::string& obstacle) {
  if (obstacle.empty()) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("the model cannot be cut into pipeline stages: {}; use 1 stage, or write this part of "
                              "forward as direct calls of its modules",
                              obstacle));
}

FlatForward find_layers(graph::FlatGraph flat, const std::vector<UnitCandidate>& units) {
  FlatForward out{{std::move(flat)}, {}, {}, {}, {}};
  require_followed(out.obstacle);
  LayerSearch(out, units).run();
  index_nodes(out);
  return out;
}

}  // namespace dslaunch::runtime::model::stages
