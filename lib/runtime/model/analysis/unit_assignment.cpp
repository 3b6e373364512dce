#include "runtime/model/analysis/unit_assignment.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"
#include "runtime/state/mask_minimum.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Module;
using torch::jit::Node;

bool can_be_sharded(const ParameterInfo& frozen) {
  return frozen.numel > 0 && (frozen.dtype == at::kFloat || is_half(frozen.dtype));
}

class Assignment {
 public:
  Assignment(const Module& model, const std::vector<graph::UnitCandidate>& candidates,
             const units::BoundUnit::Locations& locations, ParameterTable& table)
      : locations_(locations), table_(table) {
    for (const auto& candidate : candidates) {
      const ObjectKey key = candidate.module._ivalue().get();
      candidate_of_[key] = &candidate;
      for (const auto& inner : candidate.module.modules()) candidate_by_object_[inner._ivalue().get()] = key;
    }
    use_ = scan_unit_use(model, candidate_by_object_);
    for (const auto& of_parameter : locations) {
      for (const auto& location : of_parameter) parameter_slots_.emplace(location.object.get(), location.slot);
    }
  }

  UnitAssignment run() {
    list_units();
    for (size_t parameter = 0; parameter < locations_.size(); ++parameter) assign(static_cast<int>(parameter));
    UnitAssignment out{bound(0, {}), {}, use_.is_analyzable || candidate_of_.empty()};
    for (size_t unit = 1; unit < table_.units.size(); ++unit) {
      if (table_.units[unit].parameters.empty() && table_.units[unit].frozen.empty()) continue;
      const auto& candidate = *candidate_of_.at(use_.call_order[unit - 1]);
      out.others.push_back({bound_to(static_cast<int>(unit), candidate.module), candidate.module, candidate.is_block});
    }
    return out;
  }

 private:
  void list_units() {
    table_.units.push_back({"", {}});
    if (!use_.is_analyzable) return;
    for (ObjectKey key : use_.call_order) {
      unit_of_[key] = static_cast<int>(table_.units.size());
      table_.units.push_back({candidate_of_.at(key)->path, {}});
    }
  }

  void assign(int index) {
    std::set<int> units;
    for (const auto& location : locations_[index]) units.insert(unit_at(location));
    auto& parameter = table_.parameters[index];
    parameter.unit = units.size() == 1 ? *units.begin() : 0;
    auto& unit = table_.units[parameter.unit];
    if (parameter.trainable) {
      unit.parameters.push_back(index);
    } else if (can_be_sharded(parameter)) {
      unit.frozen.push_back(index);
    }
  }

  int unit_at(const ParameterLocation& location) const {
    const auto candidate = candidate_by_object_.find(location.object.get());
    const bool is_read_outside = use_.read_outside.count({location.object.get(), location.slot}) > 0;
    if (candidate == candidate_by_object_.end() || is_read_outside) return 0;
    const auto unit = unit_of_.find(candidate->second);
    return unit == unit_of_.end() ? 0 : unit->second;
  }

  units::BoundUnit bound_to(int unit, const Module& module) const {
    std::unordered_set<ObjectKey> inside;
    for (const auto& inner : module.modules()) inside.insert(inner._ivalue().get());
    units::BoundUnit out = bound(unit, inside);
    out.state = file::find_tensor_state(module, parameter_slots_);
    return out;
  }

  units::BoundUnit bound(int unit, const std::unordered_set<ObjectKey>& inside) const {
    const auto& members = table_.units[static_cast<size_t>(unit)];
    units::BoundUnit out;
    out.unit = unit;
    out.name = members.name;
    for (int parameter : members.parameters) out.locations.push_back(locations_[parameter]);
    for (int parameter : members.frozen) out.frozen_locations.push_back(locations_[parameter]);
    for (size_t i = 0; i < table_.parameters.size(); ++i) {
      const auto& parameter = table_.parameters[i];
      if (parameter.unit == unit || !(parameter.trainable || can_be_sharded(parameter))) continue;
      std::vector<ParameterLocation> external;
      for (const auto& location : locations_[i]) {
        if (inside.count(location.object.get())) external.push_back(location);
      }
      if (!external.empty()) out.external.push_back(std::move(external));
    }
    return out;
  }

  const units::BoundUnit::Locations& locations_;
  ParameterTable& table_;
  std::unordered_map<ObjectKey, const graph::UnitCandidate*> candidate_of_;
  std::unordered_map<ObjectKey, ObjectKey> candidate_by_object_;  // every object inside a candidate -> the candidate
  UnitUse use_;
  std::set<SlotKey> parameter_slots_;
  std::unordered_map<ObjectKey, int> unit_of_;  // by candidate
};

// Follows module values through the graphs of all methods that forward reaches.
class UnitUseScan {
 public:
  explicit UnitUseScan(const std::unordered_map<ObjectKey, ObjectKey>& unit_of) : unit_of_(unit_of) {}

  UnitUse run(const torch::jit::Module& model) {
    visit_method(model._ivalue(), "forward", nullptr, {});
    return std::move(use_);
  }

 private:
  // `modules`: modules that the call passes as arguments, by position (a trace does so with shared modules).
  using ModuleArguments = std::map<size_t, c10::intrusive_ptr<c10::ivalue::Object>>;

  void visit_method(const c10::intrusive_ptr<c10::ivalue::Object>& object, const std::string& name, ObjectKey unit,
                    const ModuleArguments& modules) {
    std::vector<ObjectKey> keys{object.get(), unit};
    for (const auto& [position, module] : modules) keys.push_back(module.get());
    if (!visited_.insert({keys, name}).second) return;
    auto* method = object->type()->findMethod(name);
    if (!method || !method->isGraphFunction()) return;
    method->ensure_defined();
    auto graph = torch::jit::toGraphFunction(*method).graph();
    graph::ObjectOfValue objects{{graph->inputs()[0], object}};
    for (const auto& [position, module] : modules) objects[graph->inputs()[position]] = module;
    visit_block(graph->block(), objects, unit);
  }

  void visit_block(const Block* block, graph::ObjectOfValue& objects, ObjectKey unit) {
    for (const Node* node : block->nodes()) {
      if (node->kind() == c10::prim::GetAttr) {
        note_read(node, objects, unit);
        graph::bind_attribute(node, objects);
      } else if (node->kind() == c10::prim::CallMethod) {
        visit_call(node, objects, unit);
      } else if (node->kind() == c10::prim::fork || node->hasAttribute(c10::attr::Subgraph)) {
        use_.is_analyzable = false;  // another thread may call a unit at the same time
      }
      for (const Block* inner : node->blocks()) visit_block(inner, objects, unit);
    }
  }

  void note_read(const Node* node, const graph::ObjectOfValue& objects, ObjectKey unit) {
    auto owner = objects.find(node->input(0));
    if (owner == objects.end()) return;
    const size_t slot = owner->second->type()->getAttributeSlot(node->s(c10::attr::name));
    auto candidate = unit_of_.find(owner->second.get());
    if (candidate != unit_of_.end() && candidate->second != unit) use_.read_outside.emplace(owner->second.get(), slot);
  }

  void visit_call(const Node* node, const graph::ObjectOfValue& objects, ObjectKey unit) {
    auto callee = objects.find(node->input(0));
    if (callee == objects.end()) {
      // An object created during forward (torch.no_grad() is one) holds no modules; one behind an interface may be any.
      const auto made = node->input(0)->type()->cast<c10::ClassType>();
      if (!made || made->is_module()) use_.is_analyzable = false;
      return;
    }
    const std::string& name = node->s(c10::attr::name);
    ObjectKey inner = unit;
    auto candidate = unit_of_.find(callee->second.get());
    if (unit == nullptr && name == "forward" && candidate != unit_of_.end() &&
        candidate->second == callee->second.get()) {
      inner = callee->second.get();
      if (called_.insert(inner).second) use_.call_order.push_back(inner);
    }
    ModuleArguments modules;
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      if (auto given = objects.find(node->input(i)); given != objects.end()) modules[i] = given->second;
    }
    visit_method(callee->second, name, inner, modules);
  }

  const std::unordered_map<ObjectKey, ObjectKey>& unit_of_;
  std::set<std::pair<std::vector<ObjectKey>, std::string>> visited_;  // object, unit, modules among the arguments
  std::unordered_set<ObjectKey> called_;
  UnitUse use_;
};

}  // namespace

UnitAssignment assign_units(const Module& model, const std::vector<graph::UnitCandidate>& candidates,
                            const units::BoundUnit::Locations& locations, ParameterTable& table) {
  return Assignment(model, candidates, locations, table).run();
}

UnitUse scan_unit_use(const torch::jit::Module& model, const std::unordered_map<ObjectKey, ObjectKey>& unit_of) {
  return UnitUseScan(unit_of).run(model);
}

}  // namespace dslaunch::runtime::model::analysis
