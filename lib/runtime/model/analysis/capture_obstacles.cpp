#include "runtime/model/analysis/capture_obstacles.hpp"

#include <torch/csrc/jit/ir/ir.h>

#include <string_view>

#include "base/format.hpp"
#include "runtime/model/graph/walk.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"

namespace dslaunch::runtime::model::analysis {
namespace {

using torch::jit::Node;

bool is_attribute(const torch::jit::Value* value) {
  return value->node()->kind() == c10::prim::GetAttr;
}

// `self.seen.append(x)`: only operators on lists and dicts change state on the host.
bool changes_container(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || node->inputs().empty() || schema->arguments().empty()) return false;
  const auto* info = schema->arguments()[0].alias_info();
  const auto kind = node->input(0)->type()->kind();
  const bool is_container = kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType;
  return is_container && info != nullptr && info->isWrite() && is_attribute(node->input(0));
}

Result<> check_capturable(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  if (kind == "prim::SetAttr")
    return Failure{fmt::format("the model sets its attribute '{}'", node->s(c10::attr::name))};
  if (changes_container(node)) {
    return Failure{fmt::format("the model changes the contents of its attribute '{}'",
                               node->input(0)->node()->s(c10::attr::name))};
  }
  if (node->kind() == c10::prim::CallMethod && !node->input(0)->type()->is_module()) {
    return Failure{"the model calls methods of one of its objects, which may change the object"};
  }
  if (kind == "prim::fork" || kind == "aten::wait") return Failure{"the model runs parts of itself on other threads"};
  if (kind == "prim::Print") return Failure{"the model prints"};
  if (kind == "prim::TimePoint") return Failure{"the model reads the clock"};
  return {};
}

}  // namespace

// Tensors count as buffers, whatever the Python code registered them as.
HostState find_host_state(const torch::jit::Module& module, const graph::ForwardEffects& effects) {
  HostState state;
  state.is_analyzable = effects.is_analyzable;
  for (const auto& part : module.named_modules()) {
    const auto& type = part.value.type();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const bool is_written = effects.written.count({part.value._ivalue().get(), slot}) > 0;
      if (!is_written || type->getAttribute(slot)->isSubtypeOf(*c10::TensorType::get())) continue;
      state.changed.push_back(file::join_path(part.name, type->getAttributeName(slot)));
    }
  }
  return state;
}

Result<> check_capturable(const torch::jit::Module& model, const HostState& state) {
  Result<> nodes;
  graph::for_every_node(model, [&](const Node* node) {
    if (nodes.ok()) nodes = check_capturable(node);
  });
  if (!nodes.ok()) return nodes;
  if (!state.changed.empty()) {
    return Failure{
        fmt::format("the model changes attributes that are not tensors: {}", fmt::join(state.changed, ", "))};
  }
  if (!state.is_analyzable) {
    return Failure{"the model calls code that cannot be analyzed before it runs (an interface, another thread)"};
  }
  return {};
}

}  // namespace dslaunch::runtime::model::analysis
