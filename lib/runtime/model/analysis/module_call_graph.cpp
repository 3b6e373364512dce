#include "runtime/model/analysis/module_call_graph.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/model/graph/flat_graph.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Block;
using torch::jit::Node;

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

UnitUse scan_unit_use(const torch::jit::Module& model, const std::unordered_map<ObjectKey, ObjectKey>& unit_of) {
  return UnitUseScan(unit_of).run(model);
}

}  // namespace dslaunch::runtime::model::analysis
