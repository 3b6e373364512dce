#include <algorithm>

#include "runtime/model/graph/walk.hpp"
#include "runtime/model/stages/stage_needs.hpp"
#include "runtime/model/stages/value_kinds.hpp"

namespace dslaunch::runtime::model::stages {

using torch::jit::Node;

namespace {

// The node of the flattened forward that a node is, or lies in.
size_t position_of(const FlatForward& flat, const Node* node) {
  for (;; node = node->owningBlock()->owningNode()) {
    const auto found = flat.position.find(node);
    if (found != flat.position.end()) return found->second;
    if (node->owningBlock()->owningNode() == nullptr) return flat.nodes.size();  // it returns from forward
  }
}

}  // namespace

SlotsRead::SlotsRead(const FlatForward& flat, const std::vector<size_t>& nodes) : nodes_(nodes.begin(), nodes.end()) {
  for (size_t position : nodes) {
    const Node* node = flat.nodes.at(position);
    note(flat, node);
    for (const auto* block : node->blocks()) {
      graph::for_each_node(block, [&](const Node* inner) { note(flat, inner); });
    }
  }
}

// Whether one of the nodes takes more from the value than a size.
bool SlotsRead::reads(const FlatForward& flat, const torch::jit::Value* value) const {
  return std::any_of(value->uses().begin(), value->uses().end(), [&](const torch::jit::Use& use) {
    return !reads_size(use.user) && nodes_.count(position_of(flat, use.user)) > 0;
  });
}

void SlotsRead::note(const FlatForward& flat, const Node* node) {
  if (const auto unit = flat.unit_calls.find(node); unit != flat.unit_calls.end()) {
    for (const auto& inner : torch::jit::Module(unit->second).modules()) objects_.insert(inner._ivalue().get());
  }
  if (node->kind() == c10::prim::GetAttr) {
    const auto owner = flat.objects.find(node->input(0));
    if (owner != flat.objects.end() && reads(flat, node->output())) {
      const auto& object = owner->second;
      slots_.emplace(object.get(), object->type()->getAttributeSlot(node->s(c10::attr::name)));
    }
  }
}

bool SlotsRead::contains(const std::vector<ParameterLocation>& locations) const {
  return std::any_of(locations.begin(), locations.end(), [&](const ParameterLocation& location) {
    return objects_.count(location.object.get()) > 0 || slots_.count({location.object.get(), location.slot}) > 0;
  });
}

std::vector<std::vector<int>> find_holders(const FlatForward& flat, const std::vector<SlotsRead>& by_stage,
                                           const std::vector<size_t>& stage_begins,
                                           const std::vector<std::vector<ParameterLocation>>& tensors) {
  std::unordered_map<ObjectKey, int> stage_of_object;
  for (const auto& layer : flat.layers) {
    if (layer.module == nullptr) continue;
    const auto after = std::upper_bound(stage_begins.begin(), stage_begins.end(), layer.begin);
    const int stage = static_cast<int>(after - stage_begins.begin()) - 1;
    for (const auto& inner : torch::jit::Module(layer.module).modules()) {
      stage_of_object.try_emplace(inner._ivalue().get(), stage);
    }
  }
  std::vector<std::vector<int>> out;
  int last = 0;
  for (const auto& locations : tensors) {
    std::vector<int> holders;
    for (size_t stage = 0; stage < by_stage.size(); ++stage) {
      if (by_stage[stage].contains(locations)) holders.push_back(static_cast<int>(stage));
    }
    if (holders.empty()) {
      const auto found = stage_of_object.find(locations.front().object.get());
      holders.push_back(found == stage_of_object.end() ? last : found->second);
    }
    last = holders.front();
    out.push_back(std::move(holders));
  }
  return out;
}

}  // namespace dslaunch::runtime::model::stages
